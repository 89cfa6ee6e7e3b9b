"""The log directories of a broker: where a partition is placed, and of each directory its
checkpoints from the last shutdown and whether it is online.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.events import DiskFailed
from kraftsim.server.identity import NO_DIRECTORY_ID, load_directory_identity
from kraftsim.world.interface import World
from protocol.malformed import MalformedMessage
from protocol.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    partition_directory_name,
)
from protocol.storage.text_files import (
    build_clean_shutdown,
    build_offset_checkpoint,
    parse_clean_shutdown,
    parse_offset_checkpoint,
)
from protocol.uuids import LOST_DIRECTORY_ID, UNASSIGNED_DIRECTORY_ID

# --------------------------------------------------------------------------------------------------
# One log directory of a broker: its checkpoints from the last shutdown, and whether it is online
#
# Source: kafka.log.LogManager (checkpoints, clean shutdown files), OffsetCheckpointFile.

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
        self.shutdown_epoch = NO_BROKER_EPOCH
        """The broker epoch of the last clean shutdown, if it was one and has stored it."""
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
        with suppress(MalformedMessage):
            self.shutdown_epoch = parse_clean_shutdown(disk.read(CLEAN_SHUTDOWN))
        disk.remove(CLEAN_SHUTDOWN)
        await disk.flush_directory(
            ""
            # otherwise the file could reappear after a power failure and mark open logs as cleanly
            # closed
        )
        return self.shutdown_epoch

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


# --------------------------------------------------------------------------------------------------
# All log directories of a broker: where a partition is located, where a new partition is placed,
# and which directories are online
#
# Source: kafka.log.LogManager.{createAndValidateLogDirs, nextLogDirs, getOrCreateLog,
# readBrokerEpochFromCleanShutdownFiles}, KIP-112, KIP-858.

UNKNOWN_PLACES = (NO_DIRECTORY_ID, UNASSIGNED_DIRECTORY_ID)
OnFailure = Callable[[LogDirectory, str, str, OSError], None]
"""Receives an I/O error: (directory, path in it, operation, error)."""


class LogDirectories:
    """The first one is the node's data directory, which also has the node's other files."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        self._world = world
        self._config = config
        self.all: list[LogDirectory] = []

    async def open(self, directory_id: bytes) -> int:
        """Load the state of the last shutdown of each; return its broker epoch if all were shut
        down cleanly with the same one (else -1).

        `directory_id` is that of the first. An unreadable directory starts offline. Raises
        ConfigError, or OSError of the first one.
        """
        epochs = []
        for path in self._config.log_dirs:
            is_first = not self.all
            directory = (
                LogDirectory(path, self._world, directory_id)
                if is_first
                else LogDirectory(path, self._world, NO_DIRECTORY_ID)
            )
            self.all.append(directory)
            try:
                if not is_first:
                    directory.world = self._world.elsewhere(path)
                    directory.directory_id = await load_directory_identity(
                        directory.world, self._config, path
                    )
                epochs.append(await directory.load())
            except OSError as failure:
                if is_first:
                    raise
                directory.take_offline(failure)
                self._world.emit(DiskFailed(path=path, operation="open", reason=str(failure)))
        ids = [each.directory_id for each in self.online if each.directory_id != NO_DIRECTORY_ID]
        if len(set(ids)) < len(ids):
            raise ConfigError(
                f"log.dirs: two of {', '.join(self._config.log_dirs)} have the same directory.id"
            )
        is_sure = len(epochs) == len(self.all) and len(set(epochs)) == 1
        return epochs[0] if is_sure else NO_BROKER_EPOCH

    @property
    def online(self) -> list[LogDirectory]:
        """The online directories, in the order of log.dirs."""
        return [each for each in self.all if each.is_online]

    @property
    def ids(self) -> list[bytes]:
        """The ids of the online directories."""
        return [each.directory_id for each in self.online]

    def by_path(self, path: str) -> LogDirectory | None:
        """Return the directory with this path in log.dirs."""
        return next((each for each in self.all if each.path == path), None)

    def by_id(self, directory_id: bytes) -> LogDirectory | None:
        """Return the online directory with this id."""
        return next(
            (
                each
                for each in self.online
                if each.directory_id == directory_id and directory_id not in UNKNOWN_PLACES
            ),
            None,
        )

    def holding(
        self, key: PartitionKey, assigned_id: bytes, on_failure: OnFailure
    ) -> list[LogDirectory]:
        """Return the directories with files of a partition; after an interrupted move there are
        two, the controller's assignment first. `on_failure` receives I/O errors.
        """
        if len(self.all) == 1:
            return self.online
        name, found = partition_directory_name(*key), list[LogDirectory]()
        for each in self.online:
            try:
                if each.world.disk.list(name):
                    found.append(each)
            except OSError as failure:
                on_failure(each, name, "list", failure)
        return sorted(found, key=lambda each: each.directory_id != assigned_id)

    def taken(self, homes: Iterable[LogDirectory]) -> dict[int, int]:
        """Count the occurrences of each directory, by its index in log.dirs."""
        places = {id(each): place for place, each in enumerate(self.all)}
        return Counter(places[id(home)] for home in homes)

    def place_for(
        self,
        key: PartitionKey,
        assigned_id: bytes,
        *,
        is_new: bool,
        taken: Mapping[int, int],
        wish: str | None,
    ) -> LogDirectory | None:
        """Return the directory for a partition without files: the requested one, the controller's
        assignment, or the one with the fewest partitions.

        None: it may be in an offline directory, and must not be created elsewhere. `taken`:
        partitions in each directory, by its index in log.dirs.
        """
        wished = None if wish is None else self.by_path(wish)
        if wished is not None and wished.is_online:
            return wished
        assigned = self.by_id(assigned_id)
        if assigned is not None:
            return assigned
        is_somewhere_else = assigned_id == LOST_DIRECTORY_ID or assigned_id not in UNKNOWN_PLACES
        if len(self.online) < len(self.all) and (not is_new or is_somewhere_else):
            return None
        counted = [
            (taken.get(place, 0), place) for place, each in enumerate(self.all) if each.is_online
        ]
        return self.all[min(counted)[1]] if counted else None
