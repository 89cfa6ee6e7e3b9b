"""Finds what the modules of a package declare, by number: messages by the API key in the name of
their file, records by the number of their class.

A file, or a class, is all that is needed to declare one more. Modules are imported when a number is
looked up for the first time, so that a registry costs nothing where nothing is read. Source: none
of Kafka's; the numbers are its API keys and record types.
"""

import importlib
import os
from collections.abc import Iterable

from protocol.codec.declaration import Kind
from protocol.schema import Declaration


def numbered_modules(folder: str, letter: str) -> dict[int, str]:
    """Map each number to the name of its module, in the order of the files' names.

    Other files of the package are ignored.
    """
    found: dict[int, str] = {}
    for file in sorted(os.listdir(folder)):
        if file.startswith(letter) and file[1:2].isdigit() and file.endswith(".py"):
            number, _, name = file.removesuffix(".py")[1:].partition("_")
            assert number.isdigit() and name, f"{file} is not called {letter}NN_name.py"
            assert int(number) not in found, f"two files for {letter}{number}"
            found[int(number)] = f"{letter}{number}_{name}"
    return found


def name_in_kafka(module_name: str) -> str:
    """Return the name that a module's messages have in common: `k22_init_producer_id` ->
    `InitProducerId`.
    """
    return "".join(word.capitalize() for word in module_name.split("_")[1:])


def classes_by_number(modules: Iterable[str], kind: Kind) -> dict[int, type]:
    """Map the number of each class of a kind to the class, in ascending order."""
    found: dict[int, type] = {}
    for module in modules:
        for value in vars(importlib.import_module(module)).values():
            declaration = getattr(value, "__declaration__", None)
            if not isinstance(declaration, Declaration) or declaration.kind != kind:
                continue
            number = declaration.api_key
            assert number is not None and number not in found, f"{module} declares {number} again"
            found[number] = value
    return dict(sorted(found.items()))
