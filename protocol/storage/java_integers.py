"""Integers in text files, as Java's Integer.parseInt and Long.parseLong accept them: plain digits
in range.

Python's int() accepts more: underscores, spaces, digits of other scripts, and unlimited length.
Source: CheckpointFile, MetaProperties.
"""

import re

_PLAIN = re.compile("[+-]?[0-9]{1,40}")


def parse_int32(text: str) -> int:
    """Return the number. Raises ValueError."""
    return _parse(text, 32)


def parse_int64(text: str) -> int:
    """Return the number. Raises ValueError."""
    return _parse(text, 64)


def _parse(text: str, bits: int) -> int:
    if not _PLAIN.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is no integer")
    number = int(text)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{number} does not fit into {bits} bits")
    return number
