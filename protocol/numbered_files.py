"""Finds the modules of a package whose files are called `kNN_name.py`: a letter for the package, a
number, a name.

A file is all that is needed to declare one more message; it is imported only when its number is
looked up.
Source: none of Kafka's; the numbers are its API keys.
"""

import os


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
