"""The indexes of a segment: offsets and timestamps, which can be rebuilt from the log, and aborted
transactions.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from protocol.codec.fixed import fixed
from protocol.malformed import MalformedFile, MalformedMessage
from protocol.schema import int32, int64, message, structure
from protocol.version_prefixed import build_version_prefixed, parse_version_prefixed

# --------------------------------------------------------------------------------------------------
# The offset index and the time index of a segment: sparse, sorted, offsets relative to the
# segment's base offset.
#
# Both can be rebuilt from the log, so a corrupt one is deleted.   Source: OffsetIndex, TimeIndex.


@structure
class RelativeOffsetEntry:
    """An entry of the offset index: offset, position of its batch in the segment."""

    relative_offset: int = int32()
    position: int = int32()


@structure
class RelativeTimeEntry:
    """An entry of the time index: largest timestamp so far, offset of the last record of the batch
    that holds it.
    """

    timestamp: int = int64()
    relative_offset: int = int32()


OFFSET_ENTRY = fixed(RelativeOffsetEntry)
TIME_ENTRY = fixed(RelativeTimeEntry)


class OffsetEntry(NamedTuple):
    """The batch with the last offset `offset` starts at `position`."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """No record up to `offset` has a later timestamp than `timestamp`."""

    timestamp: int
    offset: int


def build_offset_index(base_offset: int, entries: Iterable[OffsetEntry]) -> bytes:
    """Return the entries as they are appended to an `.index` file."""
    return b"".join(
        OFFSET_ENTRY.pack(entry.offset - base_offset, entry.position) for entry in entries
    )


def parse_offset_index(base_offset: int, data: bytes) -> list[OffsetEntry]:
    """Return the entries.

    Raises MalformedFile if the size is no multiple of an entry or the entries do not increase.
    """
    if len(data) % OFFSET_ENTRY.size:
        raise MalformedFile("offset index", f"{len(data)} bytes")
    entries = [
        OffsetEntry(base_offset + relative, position)
        for relative, position in OFFSET_ENTRY.iter_unpack(data)
    ]
    for entry, following in pairwise(entries):
        if following.offset <= entry.offset or following.position <= entry.position:
            raise MalformedFile("offset index", f"{following} after {entry}")
    return entries


def build_time_index(base_offset: int, entries: Iterable[TimeEntry]) -> bytes:
    """Return the entries as they are appended to a `.timeindex` file."""
    return b"".join(
        TIME_ENTRY.pack(entry.timestamp, entry.offset - base_offset) for entry in entries
    )


def parse_time_index(base_offset: int, data: bytes) -> list[TimeEntry]:
    """Return the entries.

    Raises MalformedFile if the size is no multiple of an entry or the entries do not increase.
    """
    if len(data) % TIME_ENTRY.size:
        raise MalformedFile("time index", f"{len(data)} bytes")
    entries = [
        TimeEntry(timestamp, base_offset + relative)
        for timestamp, relative in TIME_ENTRY.iter_unpack(data)
    ]
    for entry, following in pairwise(entries):
        if following.timestamp < entry.timestamp or following.offset < entry.offset:
            raise MalformedFile("time index", f"{following} after {entry}")
    return entries


# --------------------------------------------------------------------------------------------------
# The transaction index of a segment: one entry for every aborted transaction with its marker in
# this segment.
#
# A read_committed fetch returns from it the transactions to skip.
# Source: KIP-98, TransactionIndex, AbortedTxn.json (after 4.1).

TRANSACTION_INDEX = "transaction index"
TRANSACTION_INDEX_VERSION = 0
TRANSACTION_BYTES = 34  # two for the version


@message(kind="data", versions="0", kafka_name="AbortedTxn")
class AbortedTransaction:
    """An aborted transaction from its first record to its marker at last_offset, and the last
    stable offset after the marker.
    """

    producer_id: int = int64()
    first_offset: int = int64()
    last_offset: int = int64()
    last_stable_offset: int = int64()


def build_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    """Return the entries as they are appended to a `.txnindex` file."""
    return b"".join(build_version_prefixed(entry, TRANSACTION_INDEX_VERSION) for entry in entries)


def parse_transaction_index(data: bytes) -> list[AbortedTransaction]:
    """Return the entries. Raises MalformedFile for an odd size or a version that does not exist."""
    if len(data) % TRANSACTION_BYTES:
        raise MalformedFile(TRANSACTION_INDEX, f"{len(data)} bytes")
    try:
        return [
            parse_version_prefixed(AbortedTransaction, data[start : start + TRANSACTION_BYTES])
            for start in range(0, len(data), TRANSACTION_BYTES)
        ]
    except MalformedMessage as malformed:
        raise MalformedFile(TRANSACTION_INDEX, malformed.reason) from malformed
