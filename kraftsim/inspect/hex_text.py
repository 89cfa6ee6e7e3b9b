"""Hex in any common form: spaces, colons, commas, line ends, 0x, and the lines that hexdump, xxd
and tcpdump -X print.
"""

import re
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
