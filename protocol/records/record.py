"""One record of a batch, and the bounds of its numbers.

Source: KIP-98 (message format 2), DefaultRecord.
"""

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]

UNASSIGNED_OFFSET = -1
NO_TIMESTAMP = -1
INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1
# a broker never decodes header keys: what is not UTF-8 must pass through unharmed
HEADER_KEY_ERRORS = "surrogateescape"


class Record(NamedTuple):
    """One record.

    A builder numbers records without an offset from the batch's base offset on; timestamps are
    milliseconds since 1970.
    """

    offset: int = UNASSIGNED_OFFSET
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


def in_64_bits(number: int) -> int:
    """Return what Java's arithmetic makes of a number: it wraps around."""
    return (number - INT64_MIN & 0xFFFF_FFFF_FFFF_FFFF) + INT64_MIN
