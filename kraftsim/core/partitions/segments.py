"""The segments of a log: base offsets, sparse indexes, and rolling. Does not handle bytes.

Source: org.apache.kafka.storage.internals.log.LogSegment, LogSegments, UnifiedLog.maybeRoll.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protocol.disk.segment_indexes import OffsetEntry, TimeEntry

WEEK_MS: Final = 7 * 86_400_000
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""Index entries have offsets relative to the base offset, as int32."""
NO_TIMESTAMP: Final = -1
OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSettings:
    """log.segment.bytes, log.roll.ms and log.index.interval.bytes, or the topic's overrides."""

    segment_bytes: int = 1 << 30
    segment_ms: int = WEEK_MS
    index_interval_bytes: int = 4096


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """The entries to append to a segment's `.index` and, if there is one, to its `.timeindex`."""

    offset: OffsetEntry
    time: TimeEntry | None


class Segment:
    """One segment, with the offsets base_offset .. the next segment's base offset - 1."""

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
        """Last offset of the batch with the maximum timestamp."""
        self.written_ms: int | None = None
        """Wall clock of the last append by this process, if any."""
        self._created_ms = created_ms
        self._first_timestamp: int | None = None
        self._bytes_since_entry = 0
        self._entry_offsets: list[int] = []
        self._entry_positions: list[int] = []
        self._entry_timestamps: list[int] = []
        self._time_entry_offsets: list[int] = []

    def add_batch(
        self, last_offset: int, size_bytes: int, max_timestamp: int, index_interval_bytes: int
    ) -> IndexEntries | None:
        """Record a batch appended to the file, and return its index entries: one per
        index.interval.bytes.
        """
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
        """The last modification time, if known: else the maximum timestamp, or the creation
        time.
        """
        if self.written_ms is not None:
            return self.written_ms
        return self._created_ms if self.max_timestamp == NO_TIMESTAMP else self.max_timestamp

    @property
    def age_timestamp(self) -> int:
        """The timestamp for retention: the maximum timestamp; without one, the last modification or
        creation time.
        """
        return self.max_timestamp if self.max_timestamp != NO_TIMESTAMP else self.last_written_ms

    @property
    def first_timestamp(self) -> int | None:
        """The maximum timestamp of its first batch; None if it has none, or it is unknown."""
        return self._first_timestamp

    @property
    def offset_index_bytes(self) -> int:
        """The size of its offset index."""
        return len(self._entry_offsets) * OFFSET_ENTRY_BYTES

    @property
    def time_index_bytes(self) -> int:
        """The size of its time index."""
        return len(self._entry_timestamps) * TIME_ENTRY_BYTES

    def restore(
        self,
        size_bytes: int,
        offsets: Sequence[OffsetEntry],
        times: Sequence[TimeEntry],
        first_timestamp: int | None,
    ) -> None:
        """Restore a segment's state up to size_bytes from its indexes; `first_timestamp` is the
        maximum of its first batch, if known.
        """
        self.size_bytes = size_bytes
        self._first_timestamp = first_timestamp
        self._entry_offsets = [entry.offset for entry in offsets]
        self._entry_positions = [entry.position for entry in offsets]
        self._entry_timestamps = [entry.timestamp for entry in times]
        self._time_entry_offsets = [entry.offset for entry in times]
        if times:
            self.max_timestamp, self.offset_of_max_timestamp = times[-1]

    def close(self) -> TimeEntry | None:
        """Return the time index entry to append when a segment is rolled or shut down; None if the
        last one has the same.
        """
        return self._add_time_entry()

    def position_before(self, offset: int) -> int:
        """Return the position to start a search for an offset: of a batch that does not begin after
        it.
        """
        found = bisect_right(self._entry_offsets, offset)
        return self._entry_positions[found - 1] if found else 0

    def boundary_before(self, position: int, end_offset: int) -> int:
        """Return a batch boundary not after `position`, whose records begin below `end_offset`;
        near the last such one.
        """
        found = min(
            bisect_right(self._entry_positions, position),
            bisect_left(self._entry_offsets, end_offset),
        )
        return self._entry_positions[found - 1] if found else 0

    def position_before_timestamp(self, timestamp: int) -> int:
        """Return the position to start a search for the first record with this timestamp or a later
        one.
        """
        found = bisect_right(self._entry_timestamps, timestamp)
        return self.position_before(self._time_entry_offsets[found - 1]) if found else 0

    def waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        """Return the time since the segment's first record, by timestamps if it has any (KIP-33),
        else by the clock.
        """
        return (
            now_ms - self._created_ms
            if self._first_timestamp is None
            else max_timestamp - self._first_timestamp
        )

    def _add_time_entry(self) -> TimeEntry | None:
        if self.max_timestamp <= (
            self._entry_timestamps[-1] if self._entry_timestamps else NO_TIMESTAMP
        ):
            return None
        self._entry_timestamps.append(self.max_timestamp)
        self._time_entry_offsets.append(self.offset_of_max_timestamp)
        return TimeEntry(self.max_timestamp, self.offset_of_max_timestamp)


class SegmentList:
    """The segments of one log, oldest first; the last one is active.

    When a log is opened, every batch is added again.
    """

    __slots__ = ("_base_offsets", "_segments", "_settings", "log_end_offset")

    def __init__(self, settings: SegmentSettings) -> None:
        self._settings = settings
        self._segments: list[Segment] = []
        self._base_offsets: list[int] = []
        self.log_end_offset = 0
        """The log end offset."""

    @property
    def settings(self) -> SegmentSettings:
        """The settings of rolling and index density: may be replaced at any time, used from the
        next batch on.
        """
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
        """The active segment."""
        return self._segments[-1]

    @property
    def first_base_offset(self) -> int:
        """The base offset of the oldest segment."""
        return self._base_offsets[0]

    def add_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Add the next segment: the first one anywhere, a rolled one at the log end offset, an
        existing one at the offset of its file name.

        An empty log then ends where its first segment begins.
        """
        assert not self._segments or base_offset >= self.log_end_offset, (
            f"a segment at {base_offset} below the log end offset {self.log_end_offset}"
        )
        assert base_offset not in self._base_offsets[-1:], (
            f"there is already a segment at {base_offset}"
        )
        self.log_end_offset = (
            max(self.log_end_offset, base_offset) if self._segments else base_offset
        )
        self._segments.append(Segment(base_offset, now_ms))
        self._base_offsets.append(base_offset)
        return self._segments[-1]

    def must_roll(
        self, *, last_offset: int, size_bytes: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Return whether to roll before a batch: the active segment is full, or too old, or the
        offset or timestamp does not fit its index.
        """
        active = self._segments[-1]
        if not active.size_bytes:
            return False
        is_full = active.size_bytes > self._settings.segment_bytes - size_bytes
        is_old = active.waited_ms(max_timestamp, now_ms) > self._settings.segment_ms
        return is_full or is_old or last_offset - active.base_offset > RELATIVE_OFFSET_MAX

    def add_batch(
        self, *, first_offset: int, last_offset: int, size_bytes: int, max_timestamp: int
    ) -> IndexEntries | None:
        """Record a batch at the end of the active segment, and return its index entries."""
        assert first_offset >= self.log_end_offset, (
            f"a batch at {first_offset} below the log end offset {self.log_end_offset}"
        )
        self.log_end_offset = last_offset + 1
        return self._segments[-1].add_batch(
            last_offset, size_bytes, max_timestamp, self._settings.index_interval_bytes
        )

    def restore_active(
        self,
        size_bytes: int,
        next_offset: int,
        offsets: Sequence[OffsetEntry],
        times: Sequence[TimeEntry],
        first_timestamp: int | None,
    ) -> None:
        """Restore the active segment up to size_bytes from its indexes; the batch there has an
        offset of next_offset or above.
        """
        self._segments[-1].restore(size_bytes, offsets, times, first_timestamp)
        self.log_end_offset = max(self.log_end_offset, next_offset)

    def holding(self, offset: int) -> Segment | None:
        """Return the segment to search for an offset; None below the first one or from the log end
        offset on.
        """
        found = bisect_right(self._base_offsets, offset)
        return self._segments[found - 1] if found and offset < self.log_end_offset else None

    def has(self, segment: Segment) -> bool:
        """Return whether a segment still belongs to the log."""
        place = bisect_right(self._base_offsets, segment.base_offset)
        return place > 0 and self._segments[place - 1] is segment

    def after(self, segment: Segment) -> Segment | None:
        """Return the next segment; None after the active one."""
        place = bisect_right(self._base_offsets, segment.base_offset)
        return self._segments[place] if place < len(self._segments) else None

    def holding_timestamp(self, timestamp: int) -> Segment | None:
        """Return the first segment with a record of this timestamp or a later one."""
        return next(
            (segment for segment in self._segments if segment.max_timestamp >= timestamp), None
        )

    def holding_max_timestamp(self) -> Segment | None:
        """Return the first segment with the maximum timestamp of the log; None without
        timestamps.
        """
        newest = max(self._segments, key=lambda segment: segment.max_timestamp, default=None)
        return newest if newest is not None and newest.max_timestamp != NO_TIMESTAMP else None

    def replace(self, former: Sequence[Segment], segment: Segment) -> None:
        """Replace adjacent inactive segments by one; it has the base offset of the first."""
        first = bisect_left(self._base_offsets, segment.base_offset)
        end = first + len(former)
        assert self._segments[first:end] == list(former) and end < len(self._segments), (
            f"{segment.base_offset} replaces closed segments"
        )
        self._segments[first:end] = [segment]
        self._base_offsets[first:end] = [segment.base_offset]

    def remove_before(self, offset: int) -> list[Segment]:
        """Remove and return the segments whose offsets are all below an offset; the active one
        stays.
        """
        gone = min(max(bisect_right(self._base_offsets, offset) - 1, 0), len(self._segments) - 1)
        removed = self._segments[:gone]
        del self._segments[:gone], self._base_offsets[:gone]
        return removed

    def remove_from(self, base_offset: int) -> list[Segment]:
        """Remove and return the segments with a base offset of base_offset or above.

        To truncate inside a segment: remove it and add its batches again.
        """
        kept = bisect_right(self._base_offsets, base_offset - 1)
        removed = self._segments[kept:]
        del self._segments[kept:], self._base_offsets[kept:]
        if removed:
            self.log_end_offset = min(self.log_end_offset, removed[0].base_offset)
        return removed
