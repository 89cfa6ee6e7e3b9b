"""The log cleaner: compacts the log with the highest dirty ratio, and deletes expired segments of
compacted logs.

log.cleaner.threads logs are cleaned concurrently. `cleaner-offset-checkpoint` stores up to which
offset each log is clean.

Source: kafka.log.{LogCleaner.CleanerThread, LogCleanerManager.grabFilthiestCompactedLog}.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_cleaning import CleanedLog, CleaningCancelled, LogToClean, clean_log
from kraftsim.partitions.log_directory import LogDirectory, PartitionKey
from kraftsim.partitions.log_gate import LogGate
from kraftsim.partitions.rules_cleaning import (
    Cleanable,
    LogExtent,
    OffsetMap,
    cleanable,
    retained_batches_of,
)
from kraftsim.partitions.rules_scan_work import batch_work
from kraftsim.server.events import CleaningFailed, LogCleaned, SegmentsCleaned
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import World
from protocol.records.batches import RecordBatch

T = TypeVar("T")
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
