"""Finds the classes that modules declare, by the number of a record.

The modules are imported when the first record is looked up, so that a registry costs nothing where
none is read.
Source: none of Kafka's; the numbers are its record types.
"""

import importlib
from collections.abc import Iterable

from protocol.codec.declaration import Kind
from protocol.schema import Declaration


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
