"""Finds the modules of a folder whose files are called `kNN_name.py`: a letter for the folder, a number, a name.

A file is all that it takes to declare one more message; nothing is imported before somebody asks for its number.
Source: none of Kafka's; the numbers are its API keys and record types.
"""

import re
from pathlib import Path


def numbered_modules(folder: Path, letter: str) -> dict[int, str]:
    """Map each number to the name of its module, in the order of the files' names. Other files of the folder are not looked at."""
    found: dict[int, str] = {}
    for file in sorted(folder.glob(f"{letter}[0-9]*.py")):
        match = re.fullmatch(rf"{letter}(\d+)_\w+", file.stem)
        assert match is not None, f"{file.name} is not called {letter}NN_name.py"
        assert int(match[1]) not in found, f"two files for {letter}{match[1]}"
        found[int(match[1])] = file.stem
    return found


def name_in_kafka(module_name: str) -> str:
    """Return the name that a module's messages have in common: `k22_init_producer_id` -> `InitProducerId`."""
    return "".join(word.capitalize() for word in module_name.split("_")[1:])
