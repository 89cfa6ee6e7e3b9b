"""The layout of a log, without bytes: leader epochs, segments with their sparse indexes, and
retention.

Source: KIP-101, KIP-279, org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache,
org.apache.kafka.storage.internals.log.{LogSegment, LogSegments, UnifiedLog}.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from protocol.storage.indexes import OffsetEntry, TimeEntry
from protocol.storage.text_files import EpochStart

NO_LEADER_EPOCH: Final = -1
NO_OFFSET: Final = -1


# --------------------------------------------------------------------------------------------------
# The start offset of each leader epoch: two logs are compared by them, without comparing records


class LeaderEpochs:
    """The epochs of one log, oldest first. Changes are written to the `leader-epoch-checkpoint`."""

    __slots__ = ("_starts", "latest_epoch")

    latest_epoch: int | None
    """The epoch of the last entry; None without entries."""

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts = list(starts)
        self.latest_epoch = self._starts[-1].leader_epoch if self._starts else None

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        """Every epoch with its start offset."""
        return tuple(self._starts)

    def assign(self, leader_epoch: int, start_offset: int) -> bool:
        """Assign a start offset to an epoch, and return whether anything changed.

        Conflicting entries (later offset or higher epoch) are removed.
        """
        assert leader_epoch >= 0 and start_offset >= 0, (
            f"epoch {leader_epoch} cannot start at {start_offset}"
        )
        if (
            self._starts
            and self._starts[-1].leader_epoch == leader_epoch
            and start_offset >= self._starts[-1].start_offset
        ):
            return False
        self._starts = [
            start
            for start in self._starts
            if start.leader_epoch < leader_epoch and start.start_offset < start_offset
        ]
        self._starts.append(EpochStart(leader_epoch, start_offset))
        self.latest_epoch = leader_epoch
        return True

    def epoch_at(self, offset: int) -> int | None:
        """Return the epoch of the record at an offset; None if unknown."""
        return next(
            (
                start.leader_epoch
                for start in reversed(self._starts)
                if start.start_offset <= offset
            ),
            None,
        )

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset): the highest epoch here that is not above the requested one,
        and its end offset.

        An epoch that is absent or above the latest gives (-1, -1); one below the oldest gives
        itself and the start of the oldest.
        """
        latest = self.latest_epoch
        if leader_epoch == NO_LEADER_EPOCH or latest is None or leader_epoch > latest:
            return NO_LEADER_EPOCH, NO_OFFSET
        if leader_epoch == latest:
            return leader_epoch, log_end_offset
        higher = next(start for start in self._starts if start.leader_epoch > leader_epoch)
        lower = [start.leader_epoch for start in self._starts if start.leader_epoch <= leader_epoch]
        return (lower[-1] if lower else leader_epoch), higher.start_offset

    def advance_log_start(self, log_start_offset: int) -> bool:
        """Truncate from the start: remove epochs that end before the new log start offset, and
        return whether anything changed.
        """
        later = [start for start in self._starts if start.start_offset > log_start_offset]
        earlier = [start for start in self._starts if start.start_offset <= log_start_offset]
        if not earlier or (len(earlier) == 1 and earlier[0].start_offset == log_start_offset):
            return False
        self._starts = [EpochStart(earlier[-1].leader_epoch, log_start_offset), *later]
        return True

    def truncate_to(self, end_offset: int) -> None:
        """Truncate from the end: remove epochs that start at or after end_offset."""
        self._starts = [start for start in self._starts if start.start_offset < end_offset]
        self.latest_epoch = self._starts[-1].leader_epoch if self._starts else None


# --------------------------------------------------------------------------------------------------
# Segments: base offsets, sparse indexes, and rolling

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


# --------------------------------------------------------------------------------------------------
# Retention: the segments to delete, always the oldest first
#
# Below the log start offset, beyond the size limit, or expired. Records above the high watermark
# and an empty active segment stay. Without cleanup.policy delete only segments below the log start
# offset are deleted.

WITHOUT_LIMIT: Final = -1


class Reason(StrEnum):
    """Why segments are deleted."""

    LOG_START = "log start offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """`is_deleted`: cleanup.policy has delete. retention.ms and retention.bytes are -1 without
    limit.
    """

    is_deleted: bool = True
    retention_ms: int = 7 * 86_400_000
    retention_bytes: int = WITHOUT_LIMIT


@dataclass(frozen=True, slots=True)
class Expired:
    """The number of oldest segments to delete."""

    count: int
    reason: Reason


def expired(
    segments: Sequence[Segment],
    rules: RetentionRules,
    *,
    now_ms: int,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    remote_end_offset: int | None = None,
) -> Expired | None:
    """Return the segments to delete next; None if there are none.

    `now_ms` is the wall clock. Repeat until None.

    `remote_end_offset`: the highest offset in remote storage, and no later segment is deleted; None
    without remote storage.
    """
    following = [*(segment.base_offset for segment in segments[1:]), log_end_offset]

    def leading(is_due: Callable[[int, Segment], bool]) -> int:
        count = 0
        for index, segment in enumerate(segments):
            is_empty_active = index == len(segments) - 1 and not segment.size_bytes
            is_only_here = remote_end_offset is not None and following[index] > max(
                remote_end_offset + 1, log_start_offset
            )
            if (
                is_empty_active
                or is_only_here
                or high_watermark < following[index]
                or not is_due(index, segment)
            ):
                break
            count += 1
        return count

    count = leading(
        lambda index, segment: index < len(segments) - 1 and following[index] <= log_start_offset
    )
    if count:
        return Expired(count, Reason.LOG_START)
    if not rules.is_deleted:
        return None
    if rules.retention_bytes >= 0:
        surplus = sum(segment.size_bytes for segment in segments) - rules.retention_bytes

        def is_surplus(index: int, segment: Segment) -> bool:
            nonlocal surplus
            surplus -= segment.size_bytes
            return surplus >= 0

        count = leading(is_surplus) if surplus > 0 else 0
        if count:
            return Expired(count, Reason.SIZE)
    if rules.retention_ms >= 0:
        count = leading(lambda index, segment: now_ms - segment.age_timestamp > rules.retention_ms)
        if count:
            return Expired(count, Reason.TIME)
    return None
