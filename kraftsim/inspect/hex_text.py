"""Bytes as hex: printed as a dump, and read in any common form: spaces, colons, commas, line ends,
0x, and the lines that hexdump, xxd and tcpdump -X print.
"""

import re
from collections.abc import Iterator
from typing import Final

DUMP_LINE: Final = re.compile(
    r"^\s*(?:0x)?[0-9a-fA-F]{4,8}(?::\s+|\s\s+)(?P<bytes>(?:[0-9a-fA-F]{2,4}[ "
    r"\t]{1,3})*[0-9a-fA-F]{2,4})(?P<rest>[ \t]{2,}.*|[ \t]*)$"
)
SEPARATORS: Final = re.compile(r"0[xX]|\\x|[\s:,;_-]")


class NotHex(ValueError):
    """The text is not hex; the message contains the position."""


def bytes_of_hex(text: str) -> bytes:
    """Return the bytes of a hex text. Raises NotHex."""
    lines = [line for line in text.splitlines() if line.strip()]
    rows = [DUMP_LINE.match(line) for line in lines]
    if lines and all(rows) and any(row is not None and row["rest"].strip() for row in rows):
        text = " ".join(row["bytes"] for row in rows if row is not None)
    digits = SEPARATORS.sub("", text)
    wrong = re.search(r"[^0-9a-fA-F]", digits)
    if wrong is not None:
        raise NotHex(f"{wrong[0]!r} is no hex digit")
    if not digits:
        raise NotHex("there are no hex digits")
    if len(digits) % 2:
        raise NotHex(f"{len(digits)} hex digits are no whole bytes")
    return bytes.fromhex(digits)


def is_hex_text(content: bytes) -> bool:
    """Return whether the content of a file is hex text, rather than binary."""
    try:
        bytes_of_hex(content.decode("ascii"))
    except (UnicodeDecodeError, NotHex):
        return False
    return True


# --------------------------------------------------------------------------------------------------
# Bytes sixteen to a line, with marks below those that a message refers to

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
