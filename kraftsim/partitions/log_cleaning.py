"""Compacts one log: scans its dirty part for the last offset of each key, then rewrites each group
of segments with the retained records.

The work is split over event-loop turns, so that clients are served meanwhile. The cleaning can be
cancelled between two turns: swapped-in segments are valid by themselves, and the rest is unchanged.

Source: kafka.log.Cleaner.{doClean, cleanSegments}.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.producer_snapshots import ProducerSnapshots
from kraftsim.partitions.rules_cleaning import (
    BatchCleaner,
    Cleanable,
    CleaningCounts,
    CleaningRules,
    KeyScan,
    OffsetMap,
    RetainedOfProducer,
    groups,
    segments_between,
)
from kraftsim.partitions.rules_log import Segment
from kraftsim.partitions.segment_scan import SegmentScan
from kraftsim.partitions.segment_swap import CleanedSegment
from protocol.records.batches import RecordBatch

WRITTEN_BYTES_MIN = 256 * 1024
"""Retained records are written whenever this many bytes were read: until then they keep the read
buffers alive.
"""


T = TypeVar("T")


class CleaningCancelled(Exception):
    """Another operation needs the log: it is truncated, moved or deleted, or the node stops."""


class UncleanableLog(ValueError):
    """The log contains unreadable data: it must not be rewritten."""


class Pace(Protocol):
    """Throttles the cleaning of a log."""

    async def spend(self, size_bytes: int) -> None:
        """Account for bytes read or written: yield to other tasks when due.

        Raises CleaningCancelled.
        """
        ...

    async def through(self, batch: RecordBatch, look: Callable[[], T]) -> T:
        """Return the result of a function over all records of a batch; a slow one runs in a
        thread.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    """A log, its rules, the range to clean, and the producer entries to retain (read again for each
    group).
    """

    log: PartitionLog
    snapshots: ProducerSnapshots
    rules: CleaningRules
    found: Cleanable
    lasts: Callable[[], Mapping[int, RetainedOfProducer]]
    on_swap: Callable[[int, int, int], None] = lambda first_offset, next_offset, segment_count: None
    """Called for each group of segments when its replacement is about to be swapped in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedLog:
    """How far a log is clean now, and what was read and retained.

    `keys`: the number of distinct keys in the scanned dirty part.
    """

    next_dirty_offset: int
    counts: CleaningCounts
    keys: int
    segments_before: int
    segments_after: int


async def clean_log(work: LogToClean, offsets: OffsetMap, pace: Pace, *, now_ms: int) -> CleanedLog:
    """Clean a log. `offsets` is empty; `now_ms` is the wall clock.

    Raises CleaningCancelled, UncleanableLog or MalformedBatch, and OSError: then the log is
    unusable.
    """
    log, found = work.log, work.found
    await _scan_keys(log, found, offsets, pace)
    next_dirty_offset = max(offsets.latest_offset + 1, found.first_dirty_offset)
    segments = segments_between(log.segments, log.segments[0].base_offset, next_dirty_offset)
    cleaner = BatchCleaner(
        offsets,
        end_offset=found.end_offset,
        now_ms=now_ms,
        delete_retention_ms=work.rules.delete_retention_ms,
    )
    grouped = groups(segments, work.rules, found.end_offset)
    for group in grouped:
        await _clean_group(work, group, cleaner, pace, now_ms)
    return CleanedLog(
        next_dirty_offset=next_dirty_offset,
        counts=cleaner.counts,
        keys=len(offsets),
        segments_before=len(segments),
        segments_after=len(grouped),
    )


async def _scan_keys(log: PartitionLog, found: Cleanable, offsets: OffsetMap, pace: Pace) -> None:
    dirty = segments_between(log.segments, found.first_dirty_offset, found.end_offset)
    scan = KeyScan(
        offsets,
        found.first_dirty_offset,
        log.aborted_between(found.first_dirty_offset, found.end_offset),
    )
    for index, segment in enumerate(dirty):
        walk = log.scan(segment, found.first_dirty_offset)
        for batch in walk:
            # misc: mypy infers no type for a lambda with a default
            if not await pace.through(batch, lambda batch=batch: scan.take(batch)):  # type: ignore[misc]
                return
            await pace.spend(batch.size_bytes)
        _check_whole(log, segment, walk)
        scan.end_segment(
            dirty[index + 1].base_offset if index + 1 < len(dirty) else found.end_offset
        )


async def _clean_group(
    work: LogToClean, group: list[Segment], cleaner: BatchCleaner, pace: Pace, now_ms: int
) -> None:
    log = work.log
    cleaned = log.begin_cleaned(group[0].base_offset, now_ms)
    cleaner.lasts = work.lasts()
    try:
        for segment in group:
            await _copy_retained(log, segment, cleaner, cleaned, pace)
        await cleaned.finish()
        await pace.spend(0)
    except (CleaningCancelled, ValueError):
        cleaned.discard()
        raise
    following = next(
        (each.base_offset for each in log.segments if each.base_offset > group[-1].base_offset),
        log.log_end_offset,
    )
    work.on_swap(group[0].base_offset, following, len(group))
    work.snapshots.remove_at(await log.replace_segments(group, cleaned))


async def _copy_retained(
    log: PartitionLog, segment: Segment, cleaner: BatchCleaner, cleaned: CleanedSegment, pace: Pace
) -> None:
    following = next(
        (each.base_offset for each in log.segments if each.base_offset > segment.base_offset),
        log.log_end_offset,
    )
    cleaner.transactions.add(log.aborted_between(segment.base_offset, following))
    walk = log.scan(segment)
    unwritten_bytes = 0
    for batch in walk:
        # misc: mypy infers no type for a lambda with a default
        left = await pace.through(batch, lambda batch=batch: cleaner.clean(batch))  # type: ignore[misc]
        cleaned.aborted += cleaner.transactions.kept()
        if left is not None:
            cleaned.add(left, batch.last_offset, RecordBatch(left).max_timestamp)
        unwritten_bytes += batch.size_bytes
        if unwritten_bytes >= WRITTEN_BYTES_MIN:
            unwritten_bytes = 0
            await pace.spend(cleaned.write())
        await pace.spend(batch.size_bytes)
    _check_whole(log, segment, walk)
    cleaned.write()


def _check_whole(log: PartitionLog, segment: Segment, walk: SegmentScan) -> None:
    if walk.end_position != segment.size_bytes:
        raise UncleanableLog(
            f"{log.directory}: segment {segment.base_offset} cannot be read from byte "
            f"{walk.end_position} on: {walk.why_invalid}"
        )
