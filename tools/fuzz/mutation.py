"""Random mutation of inputs, for when atheris cannot be installed. It is not guided by coverage.

Half of the changes target length fields: extreme bytes and numbers, truncation, repetition, parts
of other inputs.
"""

from collections.abc import Sequence
from random import Random

EXTREME_BYTES = (0, 1, 0x7F, 0x80, 0xFF)
LARGEST = tuple(
    number.to_bytes(size, signed=True)
    for size in (2, 4, 8)
    for number in (-1, 1, (1 << 8 * size - 1) - 1, -(1 << 8 * size - 1))
)
EXTREME_WORDS = (
    b"1e999",
    b"NaN",
    b"-Infinity",
    b"null",
    b"true",
    b"[" * 3000,
    b"9" * 30,
    b"1_0",
    b"\xd9\xa3",
    b"\\ud800",
)
EXTREMES = (
    *LARGEST,
    *EXTREME_WORDS,
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
)
CHANGES_MAX = 4
INPUT_BYTES_MAX = 8192


def mutated(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return data with one to four changes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, CHANGES_MAX)):
        position = rng.randrange(len(changed) + 1)
        match rng.randrange(8):
            case 0 if position < len(changed):
                changed[position] = rng.choice(EXTREME_BYTES)
            case 1 if position < len(changed):
                changed[position] = rng.randrange(256)
            case 2 if position < len(changed):
                changed[position] ^= 1 << rng.randrange(8)
            case 3:
                number = rng.choice(EXTREMES)
                changed[position : position + len(number)] = number
            case 4:
                del changed[position : position + rng.randint(1, 8)]
            case 5:
                changed[position:position] = changed[position : position + rng.randint(1, 32)]
            case 6:
                del changed[position:]
            case _:
                other = rng.choice(others)
                start = rng.randrange(len(other) + 1)
                changed[position:position] = other[start : start + rng.randint(1, 64)]
    return bytes(changed[:INPUT_BYTES_MAX])
