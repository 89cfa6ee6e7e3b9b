"""Bytes sixteen to a line, with marks below those that a message refers to."""

from collections.abc import Iterator
from typing import Final

LINE_BYTES: Final = 16
CONTEXT_LINES: Final = 2


def hexdump(
    content: bytes, *, marked: int | None = None, context_lines: int = CONTEXT_LINES
) -> Iterator[str]:
    """Yield the lines around a marked byte, or all lines; the mark is on a line of its own.

    A mark at the end points after the last byte.
    """
    first, last = 0, max(0, len(content) - 1) // LINE_BYTES
    if marked is not None:
        first = max(0, marked // LINE_BYTES - context_lines)
        last = min(last, marked // LINE_BYTES + context_lines)
    if first > 0:
        yield f"          ... {first * LINE_BYTES} bytes before"
    for number in range(first, last + 1):
        start = number * LINE_BYTES
        row = content[start : start + LINE_BYTES]
        shown = " ".join(row[half : half + 8].hex(" ").ljust(23) for half in (0, 8))
        yield f"{start:08x}  {shown}  |{_printable(row)}|"
        if marked is not None and number == min(marked // LINE_BYTES, last):
            column = marked - start
            pad = column * 3 if column < LINE_BYTES else LINE_BYTES * 3
            yield f"{'':10}{'':{pad}}^^ byte {marked}"
    left = len(content) - (last + 1) * LINE_BYTES
    if left > 0:
        yield f"          ... {left} bytes behind"


def _printable(row: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
