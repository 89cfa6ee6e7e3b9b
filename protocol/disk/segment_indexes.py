"""The offset index and the time index of a segment: sparse, sorted, offsets relative to the
segment's base offset.

Both can be rebuilt from the log, so a corrupt one is deleted.   Source: OffsetIndex, TimeIndex.
"""

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from protocol.disk.malformed_file import MalformedFile

OFFSET_ENTRY = struct.Struct(">ii")  # offset, position of its batch in the segment
TIME_ENTRY = struct.Struct(
    ">qi"
)  # largest timestamp so far, offset of the last record of the batch that holds it


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
