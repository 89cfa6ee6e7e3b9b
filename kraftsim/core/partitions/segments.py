"""The segments of a log: where each begins, what its sparse indexes say, and when a new one is due. Bytes are somebody else's business.

Source: org.apache.kafka.storage.internals.log.LogSegment, LogSegments, UnifiedLog.maybeRoll.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protocol.disk.segment_indexes import OffsetEntry, TimeEntry

WEEK_MS: Final = 7 * 86_400_000
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""Index entries hold offsets relative to the base offset, as int32."""
NO_TIMESTAMP: Final = -1
OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSettings:
    """log.segment.bytes, log.roll.ms and log.index.interval.bytes, or what the topic says instead."""

    segment_bytes: int = 1 << 30
    segment_ms: int = WEEK_MS
    index_interval_bytes: int = 4096


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """What to append to a segment's `.index` and, if there is something, to its `.timeindex`."""

    offset: OffsetEntry
    time: TimeEntry | None


class Segment:
    """One segment. Offsets base_offset .. the next segment's base offset - 1 are in it, as far as they are in the log at all."""

    __slots__ = (
        "_bytes_since_entry",
        "_created_ms",
        "_entry_offsets",
        "_entry_positions",
        "_entry_timestamps",
        "_first_timestamp",
        "_time_entry_offsets",
        "base_offset",
        "max_timestamp",
        "offset_of_max_timestamp",
        "size_bytes",
        "written_ms",
    )

    def __init__(self, base_offset: int, created_ms: int) -> None:
        self.base_offset = base_offset
        self.size_bytes = 0
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        """Last offset of the batch that holds the greatest timestamp."""
        self.written_ms: int | None = None
        """Wall clock of the last append, as long as this process has made one."""
        self._created_ms = created_ms
        self._first_timestamp: int | None = None
        self._bytes_since_entry = 0
        self._entry_offsets: list[int] = []
        self._entry_positions: list[int] = []
        self._entry_timestamps: list[int] = []
        self._time_entry_offsets: list[int] = []

    def add_batch(self, last_offset: int, size_bytes: int, max_timestamp: int, index_interval_bytes: int) -> IndexEntries | None:
        """Count a batch that stands at the end of the file, and return the index entries it earned: one for every so many bytes."""
        position = self.size_bytes
        if self._first_timestamp is None:
            self._first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        entries = None
        if self._bytes_since_entry > index_interval_bytes:
            self._entry_offsets.append(last_offset)
            self._entry_positions.append(position)
            entries = IndexEntries(OffsetEntry(last_offset, position), self._add_time_entry())
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes
        self.size_bytes = position + size_bytes
        return entries

    @property
    def last_written_ms(self) -> int:
        """When it was last written to, as far as that is known: else its newest timestamp, or when it was opened."""
        if self.written_ms is not None:
            return self.written_ms
        return self._created_ms if self.max_timestamp == NO_TIMESTAMP else self.max_timestamp

    @property
    def age_timestamp(self) -> int:
        """By what its age is told: the newest timestamp of its records; without any, when it was last written to or opened."""
        return self.max_timestamp if self.max_timestamp != NO_TIMESTAMP else self.last_written_ms

    @property
    def first_timestamp(self) -> int | None:
        """The greatest timestamp of its first batch; None if it has none, or if that is not known."""
        return self._first_timestamp

    @property
    def offset_index_bytes(self) -> int:
        """How long its offset index is."""
        return len(self._entry_offsets) * OFFSET_ENTRY_BYTES

    @property
    def time_index_bytes(self) -> int:
        """How long its time index is."""
        return len(self._entry_timestamps) * TIME_ENTRY_BYTES

    def restore(self, size_bytes: int, offsets: Sequence[OffsetEntry], times: Sequence[TimeEntry], first_timestamp: int | None) -> None:
        """Take from its indexes what is in a segment up to size_bytes; `first_timestamp` is the greatest of its first batch, where that is known."""
        self.size_bytes = size_bytes
        self._first_timestamp = first_timestamp
        self._entry_offsets = [entry.offset for entry in offsets]
        self._entry_positions = [entry.position for entry in offsets]
        self._entry_timestamps = [entry.timestamp for entry in times]
        self._time_entry_offsets = [entry.offset for entry in times]
        if times:
            self.max_timestamp, self.offset_of_max_timestamp = times[-1]

    def close(self) -> TimeEntry | None:
        """Return the time index entry that a segment gets when it is rolled or shut down; None if the last one already says as much."""
        return self._add_time_entry()

    def position_before(self, offset: int) -> int:
        """Return where a search for an offset may start: the position of a batch that does not begin after it."""
        found = bisect_right(self._entry_offsets, offset)
        return self._entry_positions[found - 1] if found else 0

    def boundary_before(self, position: int, end_offset: int) -> int:
        """Return a position not behind `position` where a batch begins, whose records begin below `end_offset`; near the last such one."""
        found = min(bisect_right(self._entry_positions, position), bisect_left(self._entry_offsets, end_offset))
        return self._entry_positions[found - 1] if found else 0

    def position_before_timestamp(self, timestamp: int) -> int:
        """Return where a search for the first record with this timestamp or a greater one may start."""
        found = bisect_right(self._entry_timestamps, timestamp)
        return self.position_before(self._time_entry_offsets[found - 1]) if found else 0

    def waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        """Return how long the segment has been open, by its records' timestamps if it has any (KIP-33), else by the clock."""
        return now_ms - self._created_ms if self._first_timestamp is None else max_timestamp - self._first_timestamp

    def _add_time_entry(self) -> TimeEntry | None:
        if self.max_timestamp <= (self._entry_timestamps[-1] if self._entry_timestamps else NO_TIMESTAMP):
            return None
        self._entry_timestamps.append(self.max_timestamp)
        self._time_entry_offsets.append(self.offset_of_max_timestamp)
        return TimeEntry(self.max_timestamp, self.offset_of_max_timestamp)


class SegmentList:
    """The segments of one log, oldest first; the last one is active. A log that is opened is told of every batch once more."""

    __slots__ = ("_base_offsets", "_segments", "_settings", "log_end_offset")

    def __init__(self, settings: SegmentSettings) -> None:
        self._settings = settings
        self._segments: list[Segment] = []
        self._base_offsets: list[int] = []
        self.log_end_offset = 0
        """The first offset that is not in the log."""

    @property
    def settings(self) -> SegmentSettings:
        """When segments roll, and how dense their indexes are: it may be replaced at any time, and counts from the next batch on."""
        return self._settings

    @settings.setter
    def settings(self, settings: SegmentSettings) -> None:
        self._settings = settings

    @property
    def segments(self) -> Sequence[Segment]:
        """Every segment, oldest first."""
        return tuple(self._segments)

    @property
    def active(self) -> Segment:
        """The segment that grows."""
        return self._segments[-1]

    @property
    def first_base_offset(self) -> int:
        """Where the oldest segment begins."""
        return self._base_offsets[0]

    def add_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Add the next segment: the first one anywhere, a rolled one at the log end offset, a found one at the offset in its file's name.

        A log without segments ends where its first one begins, wherever the log ended before.
        """
        assert not self._segments or base_offset >= self.log_end_offset, f"a segment at {base_offset} in a log that ends at {self.log_end_offset}"
        assert base_offset not in self._base_offsets[-1:], f"there is a segment at {base_offset} already"
        self.log_end_offset = max(self.log_end_offset, base_offset) if self._segments else base_offset
        self._segments.append(Segment(base_offset, now_ms))
        self._base_offsets.append(base_offset)
        return self._segments[-1]

    def must_roll(self, *, last_offset: int, size_bytes: int, max_timestamp: int, now_ms: int) -> bool:
        """Tell whether a batch belongs into a new segment: the active one is full, or was open for too long, or lies too far back."""
        active = self._segments[-1]
        if not active.size_bytes:
            return False
        is_full = active.size_bytes > self._settings.segment_bytes - size_bytes
        is_old = active.waited_ms(max_timestamp, now_ms) > self._settings.segment_ms
        return is_full or is_old or last_offset - active.base_offset > RELATIVE_OFFSET_MAX

    def add_batch(self, *, first_offset: int, last_offset: int, size_bytes: int, max_timestamp: int) -> IndexEntries | None:
        """Count a batch at the end of the active segment, and return the index entries it earned."""
        assert first_offset >= self.log_end_offset, f"a batch at {first_offset} in a log that ends at {self.log_end_offset}"
        self.log_end_offset = last_offset + 1
        return self._segments[-1].add_batch(last_offset, size_bytes, max_timestamp, self._settings.index_interval_bytes)

    def restore_active(
        self, size_bytes: int, next_offset: int, offsets: Sequence[OffsetEntry], times: Sequence[TimeEntry], first_timestamp: int | None
    ) -> None:
        """Take from its indexes what is in the active segment up to size_bytes, where a batch begins whose offset is not below next_offset."""
        self._segments[-1].restore(size_bytes, offsets, times, first_timestamp)
        self.log_end_offset = max(self.log_end_offset, next_offset)

    def holding(self, offset: int) -> Segment | None:
        """Return the segment in which an offset is to be looked for; None below the first one or from the log end offset on."""
        found = bisect_right(self._base_offsets, offset)
        return self._segments[found - 1] if found and offset < self.log_end_offset else None

    def has(self, segment: Segment) -> bool:
        """Tell whether a segment is still one of these."""
        place = bisect_right(self._base_offsets, segment.base_offset)
        return place > 0 and self._segments[place - 1] is segment

    def after(self, segment: Segment) -> Segment | None:
        """Return the next segment; None after the active one."""
        place = bisect_right(self._base_offsets, segment.base_offset)
        return self._segments[place] if place < len(self._segments) else None

    def holding_timestamp(self, timestamp: int) -> Segment | None:
        """Return the first segment that has a record with this timestamp or a greater one."""
        return next((segment for segment in self._segments if segment.max_timestamp >= timestamp), None)

    def holding_max_timestamp(self) -> Segment | None:
        """Return the first segment that has the greatest timestamp of the log; None if no record has one."""
        newest = max(self._segments, key=lambda segment: segment.max_timestamp, default=None)
        return newest if newest is not None and newest.max_timestamp != NO_TIMESTAMP else None

    def replace(self, former: Sequence[Segment], segment: Segment) -> None:
        """Put one segment in the place of neighbours, of which none is active; it begins where the first of them did."""
        first = bisect_left(self._base_offsets, segment.base_offset)
        end = first + len(former)
        assert self._segments[first:end] == list(former) and end < len(self._segments), f"{segment.base_offset} replaces closed segments"
        self._segments[first:end] = [segment]
        self._base_offsets[first:end] = [segment.base_offset]

    def remove_before(self, offset: int) -> list[Segment]:
        """Drop the segments all of whose offsets lie before an offset, and return them; the active one stays."""
        gone = min(max(bisect_right(self._base_offsets, offset) - 1, 0), len(self._segments) - 1)
        removed = self._segments[:gone]
        del self._segments[:gone], self._base_offsets[:gone]
        return removed

    def remove_from(self, base_offset: int) -> list[Segment]:
        """Drop the segments that begin at base_offset or later, and return them. To cut inside a segment: drop it and add its batches again."""
        kept = bisect_right(self._base_offsets, base_offset - 1)
        removed = self._segments[kept:]
        del self._segments[kept:], self._base_offsets[kept:]
        if removed:
            self.log_end_offset = min(self.log_end_offset, removed[0].base_offset)
        return removed
