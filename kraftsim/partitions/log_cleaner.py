"""The log cleaner: compacts the log with the highest dirty ratio, and deletes expired segments of
compacted logs.

log.cleaner.threads logs are cleaned concurrently. `cleaner-offset-checkpoint` stores up to which
offset each log is clean.

Source: kafka.log.{LogCleaner.CleanerThread, LogCleanerManager.grabFilthiestCompactedLog}.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_directory import LogDirectory, PartitionKey
from kraftsim.partitions.log_reading import LogGate
from kraftsim.partitions.producer_snapshots import ProducerSnapshots
from kraftsim.partitions.rules_cleaning import (
    BatchCleaner,
    Cleanable,
    CleaningCounts,
    CleaningRules,
    KeyScan,
    LogExtent,
    OffsetMap,
    RetainedOfProducer,
    cleanable,
    groups,
    retained_batches_of,
    segments_between,
)
from kraftsim.partitions.rules_log import Segment
from kraftsim.partitions.rules_reading import batch_work
from kraftsim.partitions.segment_files import SegmentScan
from kraftsim.partitions.segment_swap import CleanedSegment
from kraftsim.server.events import CleaningFailed, LogCleaned, SegmentsCleaned
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import World, YieldPoint
from protocol.records.batches import RecordBatch

T = TypeVar("T")

# --------------------------------------------------------------------------------------------------
# Compacts one log: scans its dirty part for the last offset of each key, then rewrites each group
# of segments with the retained records
#
# The work is split over event-loop turns, so that clients are served meanwhile. The cleaning can be
# cancelled between two turns: swapped-in segments are valid by themselves, and the rest is
# unchanged.
#
# Source: kafka.log.Cleaner.{doClean, cleanSegments}.

WRITTEN_BYTES_MIN = 256 * 1024
"""Retained records are written whenever this many bytes were read: until then they keep the read
buffers alive.
"""


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


TURN_BYTES: Final = 128 * 1024
"""The bytes read before the cleaner yields to other tasks: some milliseconds of work."""
NAP_SECONDS_MAX: Final = 0.1
"""The longest time that a throttled cleaner keeps another user of the log waiting."""
WITHOUT_LIMIT: Final = 1e300
SLOWEST: Final = 1e-3
"""Bytes per second, in place of 0."""


class CleaningPace:
    """Yields to other tasks after every TURN_BYTES, and throttles to
    log.cleaner.io.max.bytes.per.second.
    """

    def __init__(self, world: World, gate: LogGate, bytes_per_second: float) -> None:
        self._world = world
        self._gate = gate
        self._bytes_per_second = max(bytes_per_second, SLOWEST)
        self._bytes = 0
        self._decompressed_bytes = 0
        """Decompressed bytes since the last yield; compressed batches contain more than was
        read.
        """

    async def spend(self, size_bytes: int) -> None:
        """Account for bytes that were read or written. Raises CleaningCancelled."""
        self._bytes += size_bytes
        if self._bytes >= TURN_BYTES:
            spent, self._bytes = self._bytes, 0
            left_s = (
                spent / self._bytes_per_second if self._bytes_per_second < WITHOUT_LIMIT else 0.0
            )
            while left_s > NAP_SECONDS_MAX and not self._gate.is_wanted:
                await asyncio.sleep(NAP_SECONDS_MAX)
                left_s -= NAP_SECONDS_MAX
            await asyncio.sleep(min(left_s, NAP_SECONDS_MAX))
        if self._gate.is_wanted:
            raise CleaningCancelled

    async def through(self, batch: RecordBatch, look: Callable[[], T]) -> T:
        """Run a function over all records of a batch, in a thread if it is large.

        It may change only the state of this cleaning.
        """
        work_bytes = batch_work(batch)
        if work_bytes > TURN_BYTES:
            return await self._world.aside(look)
        self._decompressed_bytes += work_bytes
        if self._decompressed_bytes >= TURN_BYTES:
            self._decompressed_bytes = 0
            await asyncio.sleep(0)
        return look()


class LogCleaner:
    """`hosted` yields the logs in order; `delete_expired` deletes the expired segments of one;
    `disk_failed` receives I/O errors.
    """

    def __init__(
        self,
        shell: NodeShell,
        *,
        hosted: Callable[[], Iterable[HostedPartition]],
        settings: Callable[[], BrokerSettings],
        delete_expired: Callable[[HostedPartition], Awaitable[None]],
        disk_failed: Callable[[str, str, OSError], None],
    ) -> None:
        self._shell = shell
        self._hosted = hosted
        self._settings = settings
        self._delete_expired = delete_expired
        self._disk_failed = disk_failed

    def begin(self) -> None:
        """Start the cleaner tasks, if the cleaner is enabled."""
        if self._shell.config.log_cleaner_enable:
            for number in range(self._shell.config.log_cleaner_threads):
                self._shell.tasks.spawn(self._run(), f"log cleaner {number}")

    async def stop(self) -> None:
        """Abort all cleanings, and wait until no log is being cleaned; a segment swap that has
        started is completed.
        """
        for hosted in list(self._hosted()):
            await hosted.log.gate.claim()

    async def _run(self) -> None:
        while True:
            if not await self.clean_dirtiest():
                await asyncio.sleep(int(self._setting("log.cleaner.backoff.ms")) / 1000)

    async def clean_dirtiest(self) -> bool:
        """Clean the log with the highest dirty ratio, delete expired segments of compacted logs,
        and return whether a log was cleaned.
        """
        now_ms = self._shell.world.clock.wall_ms()
        dirtiest: tuple[float, HostedPartition, Cleanable, tuple[PartitionLog, int]] | None = None
        for hosted in self._hosted():
            version = (hosted.log, hosted.log.truncation_count)
            found = await self._cleanable_part(hosted, now_ms)
            if found is not None and (dirtiest is None or found.ratio > dirtiest[0]):
                dirtiest = (found.ratio, hosted, found, version)
        has_cleaned = False
        if dirtiest is not None:
            _, hosted, found, version = dirtiest
            is_unchanged = (
                hosted.log,
                hosted.log.truncation_count,
            ) == version  # the search over the other logs yields
            if is_unchanged and hosted.log.is_open and hosted.log.gate.is_free:
                has_cleaned = await self._clean(hosted, found, now_ms)
        for hosted in self._hosted():
            if (
                hosted.settings.cleaning.is_compacted
                and hosted.log.is_open
                and hosted.log.gate.is_free
            ):
                await self._delete_expired(hosted)
        return has_cleaned

    async def _cleanable_part(self, hosted: HostedPartition, now_ms: int) -> Cleanable | None:
        """Return the cleanable part of a log if it is due for cleaning."""
        rules, log = hosted.settings.cleaning, hosted.log
        if (
            not rules.is_compacted
            or hosted.is_uncleanable
            or not log.gate.is_free
            or not log.is_open
        ):
            return None
        extent = LogExtent(
            segments=log.segments,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            last_stable_offset=hosted.replica.last_stable_offset,
        )
        found = cleanable(
            extent, rules, checkpoint_offset=hosted.home.cleaned_until(hosted.key), now_ms=now_ms
        )
        if found.has_new_start:
            await self._store_checkpoint(hosted, found.first_dirty_offset)
        return found if found.is_due(rules) else None

    async def _clean(self, hosted: HostedPartition, found: Cleanable, now_ms: int) -> bool:
        log, gate, world = hosted.log, hosted.log.gate, self._shell.world
        work = LogToClean(
            log=log,
            snapshots=hosted.snapshots,
            rules=hosted.settings.cleaning,
            found=found,
            lasts=lambda: retained_batches_of(hosted.replica.producer_state.entries),
            on_swap=lambda *swap: world.emit(_swap_event(hosted, *swap)),
        )
        pace = CleaningPace(
            world, gate, float(self._setting("log.cleaner.io.max.bytes.per.second"))
        )
        gate.begin_cleaning()
        try:
            if log.flushed_offset < found.end_offset:
                await hosted.flush()
            # Beyond the recovery point, recovery would mistake the offset gaps of compaction for
            # records lost in a power failure.
            await hosted.home.raise_recovery_point(hosted.key, found.end_offset)
            done = await clean_log(work, self._new_map(), pace, now_ms=now_ms)
        except CleaningCancelled:
            return True
        except OSError as failure:
            self._disk_failed(log.directory, "clean", failure)
            return False
        except ValueError as trouble:
            hosted.is_uncleanable = True
            world.emit(
                CleaningFailed(topic=hosted.topic, partition=hosted.partition, reason=str(trouble))
            )
            return False
        finally:
            gate.end_cleaning()
        await world.yield_point(YieldPoint.LOG_CLEANED)
        world.emit(_cleaned_event(hosted, found, done))
        await self._store_checkpoint(hosted, done.next_dirty_offset)
        return True

    async def _store_checkpoint(self, hosted: HostedPartition, offset: int) -> None:
        try:
            await hosted.home.store_cleaned_until(hosted.key, offset)
        except OSError as failure:
            self._disk_failed(hosted.log.directory, "write", failure)

    def _new_map(self) -> OffsetMap:
        buffer_bytes = int(self._setting("log.cleaner.dedupe.buffer.size")) // max(
            self._shell.config.log_cleaner_threads, 1
        )
        return OffsetMap(buffer_bytes, float(self._setting("log.cleaner.io.buffer.load.factor")))

    def _setting(self, name: str) -> str:
        value = self._settings().value(name)
        assert value is not None, f"{name} has a default"
        return value


def _swap_event(
    hosted: HostedPartition, first_offset: int, next_offset: int, segment_count: int
) -> SegmentsCleaned:
    return SegmentsCleaned(
        topic=hosted.topic,
        partition=hosted.partition,
        first_offset=first_offset,
        next_offset=next_offset,
        segment_count=segment_count,
    )


def _cleaned_event(hosted: HostedPartition, found: Cleanable, done: CleanedLog) -> LogCleaned:
    return LogCleaned(
        topic=hosted.topic,
        partition=hosted.partition,
        first_dirty_offset=found.first_dirty_offset,
        next_dirty_offset=done.next_dirty_offset,
        read_records=done.counts.read_records,
        kept_records=done.counts.kept_records,
        read_bytes=done.counts.read_bytes,
        kept_bytes=done.counts.kept_bytes,
        keys=done.keys,
        segments_before=done.segments_before,
        segments_after=done.segments_after,
    )


# --------------------------------------------------------------------------------------------------
# Retention: deletes expired segments, one log after the other
#
# Source: kafka.log.LogManager.cleanupLogs.


class RetentionUpkeep:
    """`fail_directory` receives I/O errors: the directory, the path, the operation, and the
    error.
    """

    def __init__(
        self,
        shell: NodeShell,
        hosted: Callable[[], Iterable[HostedPartition]],
        on_changed: Callable[[PartitionKey], None],
        fail_directory: Callable[[LogDirectory, str, str, OSError], None],
    ) -> None:
        self._shell = shell
        self._hosted = hosted
        self._on_changed = on_changed
        self._fail_directory = fail_directory

    async def delete_expired(self) -> None:
        """Delete the expired segments of all logs that the cleaner does not handle."""
        config = self._shell.config
        for hosted in list(self._hosted()):
            is_the_cleaners = (
                hosted.settings.cleaning.is_compacted
                and config.log_cleaner_enable
                and config.log_cleaner_threads
            )
            if not is_the_cleaners and hosted.log.is_open and hosted.log.gate.is_free:
                await self.delete_expired_of(hosted)

    async def delete_expired_of(self, hosted: HostedPartition) -> None:
        """Delete the expired segments of one log."""
        try:
            if hosted.delete_expired(self._shell.world.clock.wall_ms()):
                await hosted.log.store_epochs()
                self._on_changed(hosted.key)
        except OSError as failure:
            self._fail_directory(hosted.home, hosted.log.directory, "delete", failure)
