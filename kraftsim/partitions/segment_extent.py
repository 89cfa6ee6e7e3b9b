"""The extent of a segment according to its index files, if they are valid: a segment known to be
complete need not be read.

Source: org.apache.kafka.storage.internals.log.{LogSegment.sanityCheck, OffsetIndex.sanityCheck,
TimeIndex.sanityCheck}.
"""

from dataclasses import dataclass
from typing import NamedTuple

from kraftsim.partitions.rules_log import NO_TIMESTAMP
from kraftsim.partitions.segment_files import SegmentFiles
from kraftsim.world.interface import File
from protocol.malformed import MalformedFile
from protocol.records.batches import HEADER, HEADER_SIZE_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC
from protocol.storage.indexes import OffsetEntry, TimeEntry


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """A segment by its indexes.

    The batch at `position`, the last index entry, has a base offset of at least `next_offset`.
    """

    size_bytes: int
    position: int
    next_offset: int
    first_timestamp: int
    offsets: tuple[OffsetEntry, ...]
    times: tuple[TimeEntry, ...]


def segment_extent(
    files: SegmentFiles, base_offset: int, end_offset: int | None
) -> SegmentExtent | None:
    """Return the extent by the indexes, None if they are missing or invalid. `end_offset`: the base
    offset of the next segment, if there is one.
    """
    file = files.log_file(base_offset)
    if not file.size_bytes or not files.has_indexes(base_offset):
        return None
    try:
        offsets, times = files.read_indexes(base_offset)
    except MalformedFile:
        return None
    if not times or times[-1].timestamp <= NO_TIMESTAMP:
        return None
    last_offset = max(times[-1].offset, offsets[-1].offset if offsets else base_offset)
    first_offset = min(times[0].offset, offsets[0].offset if offsets else base_offset)
    if (
        first_offset < base_offset
        or (end_offset is not None and last_offset >= end_offset)
        or (offsets and not offsets[0].position)
    ):
        return None
    position = offsets[-1].position if offsets else 0
    next_offset = offsets[-2].offset + 1 if len(offsets) > 1 else base_offset
    first, last = _header(file, 0), _header(file, position)
    if (
        first is None
        or last is None
        or not next_offset <= last.base_offset <= (offsets[-1].offset if offsets else last_offset)
    ):
        return None
    start = next(
        (entry.position for entry in reversed(offsets) if entry.offset <= times[-1].offset), 0
    )
    if _timestamp_at(file, start, times[-1].offset) != times[-1].timestamp:
        return None
    return SegmentExtent(
        file.size_bytes, position, next_offset, first.max_timestamp, tuple(offsets), tuple(times)
    )


class _Header(NamedTuple):
    base_offset: int
    last_offset: int
    max_timestamp: int
    end_position: int


def _header(file: File, position: int) -> _Header | None:
    """Return the header of the batch at a position; None if there is none."""
    data = file.read(position, HEADER_SIZE_BYTES)
    if len(data) < HEADER_SIZE_BYTES:
        return None
    offset, length, _, magic, _, _, last_offset_delta, _, max_timestamp, *_ = HEADER.unpack(data)
    end_position = position + length + LENGTH_OVERHEAD_BYTES
    is_one = (
        magic == MAGIC
        and last_offset_delta >= 0
        and position + HEADER_SIZE_BYTES <= end_position <= file.size_bytes
    )
    return (
        _Header(offset, offset + last_offset_delta, max_timestamp, end_position) if is_one else None
    )


def _timestamp_at(file: File, position: int, offset: int) -> int | None:
    """Return the greatest timestamp of the batch that contains an offset, which starts at or after
    a position.
    """
    header = _header(file, position)
    while header is not None and header.last_offset < offset:
        header = _header(file, header.end_position)
    return None if header is None else header.max_timestamp
