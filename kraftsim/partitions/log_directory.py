"""One log directory of a broker: its checkpoints from the last shutdown, and whether it is online.

Source: kafka.log.LogManager (checkpoints, clean shutdown files), OffsetCheckpointFile.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from kraftsim.world.interface import World
from protocol.malformed import MalformedMessage
from protocol.storage.checkpoints import build_offset_checkpoint, parse_offset_checkpoint
from protocol.storage.clean_shutdown import build_clean_shutdown, parse_clean_shutdown
from protocol.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    partition_directory_name,
)

NO_BROKER_EPOCH = -1
PartitionKey = tuple[str, int]
"""Topic name and partition number."""
Offsets = Mapping[PartitionKey, int]
"""The content of a checkpoint file."""


class LogDirectory:
    """`path` is the entry of log.dirs, `world` provides the disk.

    No OSError is caught here; the caller must call `take_offline`.
    """

    def __init__(self, path: str, world: World, directory_id: bytes) -> None:
        self.path = path
        self.world = world
        self.directory_id = directory_id
        self.failure: OSError | None = None
        """The reason why it is offline; None while it is online."""
        self.was_stopped_cleanly = False
        self._written: dict[str, Offsets] = {}
        """The current content of each checkpoint file."""
        self._writing = asyncio.Lock()
        self._recovery_points: dict[PartitionKey, int] = {}
        self._high_watermarks: dict[PartitionKey, int] = {}
        self._log_starts: dict[PartitionKey, int] = {}
        self._cleaned_until: dict[PartitionKey, int] = {}

    @property
    def is_online(self) -> bool:
        """Whether the directory can be used."""
        return self.failure is None

    def take_offline(self, failure: OSError) -> bool:
        """Mark the directory as failed, and return whether it was online."""
        is_news = self.failure is None
        self.failure = self.failure or failure
        return is_news

    # State of the last shutdown
    # ----------------------------------------------------------------------------------------------

    async def load(self) -> int:
        """Load the checkpoints, and return the broker epoch of the last shutdown if it was a clean
        one (else -1).
        """
        disk = self.world.disk
        self._recovery_points = self._stored(
            RECOVERY_POINTS
        )  # without it every log is recovered from its start
        self._high_watermarks = self._stored(REPLICATION_OFFSETS)
        self._log_starts = self._stored(LOG_START_OFFSETS)
        self._cleaned_until = self._stored(CLEANER_OFFSETS)
        if not disk.exists(CLEAN_SHUTDOWN):
            return NO_BROKER_EPOCH
        self.was_stopped_cleanly = True
        try:
            previous_broker_epoch = parse_clean_shutdown(disk.read(CLEAN_SHUTDOWN))
        except MalformedMessage:
            previous_broker_epoch = NO_BROKER_EPOCH
        disk.remove(CLEAN_SHUTDOWN)
        await disk.flush_directory(
            ""
            # otherwise the file could reappear after a power failure and mark open logs as cleanly
            # closed
        )
        return previous_broker_epoch

    def recovery_point(self, key: PartitionKey) -> int | None:
        """Return the recovery point of a log; None after a clean shutdown, when everything is
        durable.
        """
        return None if self.was_stopped_cleanly else self._recovery_points.get(key, 0)

    def high_watermark(self, key: PartitionKey) -> int | None:
        """Return the checkpointed high watermark of a log, if there is one."""
        return self._high_watermarks.get(key)

    def log_start(self, key: PartitionKey) -> int:
        """Return the checkpointed log start offset."""
        return self._log_starts.get(key, 0)

    def cleaned_until(self, key: PartitionKey) -> int | None:
        """Return the offset up to which a log is clean; None if it was never cleaned."""
        return self._cleaned_until.get(key)

    def uncleaned_from(self, key: PartitionKey) -> int | None:
        """Return the offset from which on no record was compacted away, by the checkpoints; None
        after a clean shutdown.

        A log is cleaned only up to its recovery point. Logs of Apache Kafka may be clean beyond it,
        up to the cleaner checkpoint.
        """
        recovery_point = self.recovery_point(key)
        return (
            None if recovery_point is None else max(recovery_point, self._cleaned_until.get(key, 0))
        )

    def forget(self, key: PartitionKey) -> None:
        """A partition was removed from this directory."""
        for known in (
            self._recovery_points,
            self._high_watermarks,
            self._log_starts,
            self._cleaned_until,
        ):
            known.pop(key, None)

    # Checkpoints for the next start
    # ----------------------------------------------------------------------------------------------

    async def forget_checkpoints(self, key: PartitionKey) -> None:
        """Before a log is created: remove the checkpoint entries of a deleted log of the same name,
        which recovery would apply to the new one.
        """
        self.forget(key)
        async with self._writing:
            if any(key in written for written in self._written.values()):
                there = {*self.world.disk.list("")}
                for file, written in [*self._written.items()]:
                    await self._write(
                        file,
                        {
                            each: written[each]
                            for each in written
                            if each != key and partition_directory_name(*each) in there
                        },
                    )

    async def store_recovery_points(self, offsets: Callable[[], Offsets]) -> None:
        """Write the recovery points.

        As with the other checkpoints, `offsets` is called when the write lock is held.
        """
        await self._store(RECOVERY_POINTS, offsets)

    async def lower_recovery_point(self, key: PartitionKey, offset: int) -> None:
        """A log was truncated: records beyond `offset` are gone, and their replacements are not
        durable yet.
        """
        if self._written.get(RECOVERY_POINTS, {}).get(key, 0) > offset:
            await self._store(
                RECOVERY_POINTS, lambda: {**self._written[RECOVERY_POINTS], key: offset}
            )

    async def lower_log_start(self, key: PartitionKey, offset: int) -> None:
        """A log was restarted at a lower offset: the former log start offset would delete its
        records on the next start.
        """
        if self._written.get(LOG_START_OFFSETS, {}).get(key, 0) > offset:
            await self._store(
                LOG_START_OFFSETS, lambda: {**self._written[LOG_START_OFFSETS], key: offset}
            )

    async def raise_recovery_point(self, key: PartitionKey, offset: int) -> None:
        """Raise the checkpointed recovery point of a log to an offset, if it is lower."""
        if self._written.get(RECOVERY_POINTS, {}).get(key, 0) < offset:
            await self._store(
                RECOVERY_POINTS, lambda: {**self._written.get(RECOVERY_POINTS, {}), key: offset}
            )

    async def store_high_watermarks(self, offsets: Callable[[], Offsets]) -> None:
        """Write the high watermarks. After a restart a follower starts from them."""
        await self._store(REPLICATION_OFFSETS, offsets)

    async def store_log_starts(self, offsets: Callable[[], Offsets]) -> None:
        """Write the log start offsets."""
        await self._store(LOG_START_OFFSETS, offsets)

    async def store_cleaned_until(self, key: PartitionKey, offset: int) -> None:
        """Write the offset up to which a log is clean."""
        self._cleaned_until[key] = offset
        await self._store(CLEANER_OFFSETS, lambda: self._cleaned_until)

    def keep_only(self, keys: Iterable[PartitionKey]) -> None:
        """Drop the cleaner checkpoints of all other partitions."""
        kept = dict.fromkeys(keys)
        self._cleaned_until = {
            key: offset for key, offset in self._cleaned_until.items() if key in kept
        }

    async def mark_clean_stop(self, broker_epoch: int | None) -> None:
        """Write the clean shutdown file, after all logs have been flushed and closed."""
        await self.world.disk.replace(CLEAN_SHUTDOWN, build_clean_shutdown(broker_epoch))

    def _stored(self, file: str) -> dict[PartitionKey, int]:
        """Return the content of a checkpoint file; empty if it is missing or malformed."""
        disk = self.world.disk
        try:
            found = parse_offset_checkpoint(disk.read(file), file) if disk.exists(file) else {}
        except MalformedMessage:
            found = {}
        self._written[file] = dict(found)
        return found

    async def _store(self, file: str, offsets: Callable[[], Offsets]) -> None:
        async with self._writing:
            await self._write(file, offsets())

    async def _write(self, file: str, offsets: Offsets) -> None:
        written = dict(sorted(offsets.items()))
        await self.world.disk.replace(file, build_offset_checkpoint(written))
        self._written[file] = written
