"""Moves replicas between log directories: a future replica is built in the background, and replaces
the current one once it has caught up.

The directory name of a future replica ends in `-future`. It follows the current replica as a
follower follows its leader, and restarts if that is truncated. Once it has caught up, the
controller is notified of the new directory; then the remaining records are copied, and the two are
swapped between two requests. An interrupted move restarts with the broker.

All moves together are throttled to replica.alter.log.dirs.io.max.bytes.per.second.

Source: KIP-113, KIP-858, kafka.server.{ReplicaManager.alterReplicaLogDirs,
ReplicaAlterLogDirsThread}, LogManager.replaceCurrentWithFutureLog.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.partitions.directory_assignments import DirectoryAssignments
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_directory import LogDirectory, PartitionKey
from kraftsim.partitions.partition_opening import PartitionParts
from kraftsim.server.config import NodeConfig
from kraftsim.server.events import ReplicaMoveBegan, ReplicaMoved
from kraftsim.server.rules_quotas import SteadyRate
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import Clock
from protocol.errors import ErrorCode
from protocol.records.batches import split_batches
from protocol.storage.file_names import future_directory_name, partition_directory_name

PIECE_BYTES: Final = 256 * 1024
"""The bytes copied before a move yields to other tasks."""
IDLE_SECONDS: Final = 0.05
LIMIT_KEY: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
UUID_BYTES: Final = 16
DeleteFiles = Callable[[LogDirectory, str], Awaitable[None]]
FailDirectory = Callable[[LogDirectory, str, str, OSError], None]


class MovePace:
    """The throttle of all moves of a broker.

    Source: kafka.server.ReplicationQuotaManager (alterLogDirs).
    """

    def __init__(
        self, config: NodeConfig, clock: Clock, settings: Callable[[], BrokerSettings]
    ) -> None:
        window_ms = config.alter_log_dirs_replication_quota_window_size_seconds * 1000
        self._rate = SteadyRate(config.alter_log_dirs_replication_quota_window_num, window_ms)
        self._clock = clock
        self._settings = settings

    @property
    def is_exceeded(self) -> bool:
        """Whether the rate is above the limit, which is a dynamic config; there is none by
        default.
        """
        settings = self._settings()
        limit = settings.own.get(LIMIT_KEY, settings.cluster.get(LIMIT_KEY))
        return limit is not None and self._rate.measure(self._clock.monotonic_ms()) > int(limit)

    def record(self, size_bytes: int) -> None:
        """Record copied bytes."""
        self._rate.record(size_bytes, self._clock.monotonic_ms())


class ReplicaMove:
    """The move of one replica to `home`. `log` is the future log."""

    def __init__(
        self,
        hosted: HostedPartition,
        home: LogDirectory,
        directory: str,
        parts: PartitionParts,
        shell: NodeShell,
        pace: MovePace,
    ) -> None:
        self.hosted = hosted
        self.home = home
        self.directory = directory
        self.task: asyncio.Task[None] | None = None
        self._parts = parts
        self._shell = shell
        self._pace = pace
        self._truncation_count = hosted.log.truncation_count
        self._begin()

    def _begin(self) -> None:
        """Create the future log; it starts where the current log starts."""
        hosted = self.hosted
        self.log = PartitionLog(
            self.home.world,
            hosted.topic,
            hosted.partition,
            hosted.settings.segments,
            directory=self.directory,
        )
        self._producers = self._parts.producer_state(self._shell.config)
        self.is_begun = False

    @property
    def lag(self) -> int:
        """The number of offsets that the future log is behind."""
        return (
            max(self.hosted.log.log_end_offset - self.log.log_end_offset, 0)
            if self.is_begun
            else self.hosted.log.log_end_offset
        )

    def copy_some(self) -> bool:
        """Copy up to PIECE_BYTES, and return whether the future log has caught up.

        Raises OSError of either directory.
        """
        source = self.hosted.log
        if not self.is_begun or source.truncation_count != self._truncation_count:
            self._truncation_count = source.truncation_count
            if not self.is_begun:
                self.log.recover(lambda batch: None)
            self.log.restart_at(source.base_offsets[0])
            self._producers = self._parts.producer_state(self._shell.config)
            self.is_begun = True
        position = self.log.log_end_offset
        if position >= source.log_end_offset:
            return True
        records = source.read(position, PIECE_BYTES, source.log_end_offset)
        self._pace.record(len(records))
        for batch in split_batches(records):
            self.log.append(
                [batch.view()],
                first_offset=batch.base_offset,
                last_offset=batch.last_offset,
                size_bytes=batch.size_bytes,
                max_timestamp=batch.max_timestamp,
                leader_epoch=batch.partition_leader_epoch,
            )
            aborted = self._producers.replay(batch)
            if aborted is not None:
                self.log.add_aborted(aborted)
        return self.log.log_end_offset >= source.log_end_offset

    async def copy_all(self) -> None:
        """Copy until the future log has caught up. Raises OSError of either directory."""
        while not self.copy_some():
            await asyncio.sleep(0)
            while self._pace.is_exceeded:
                await asyncio.sleep(IDLE_SECONDS)

    async def flush(self) -> None:
        """Flush the future log with its topic id and leader epochs."""
        await self.log.store_topic_id(self.hosted.topic_id)
        self.log.epochs = self.hosted.replica.epochs_after_move(self.log.epochs)
        await self.log.store_epochs()
        await self.log.flush()

    def replace_current(self, on_rolled: Callable[[], None]) -> PartitionLog:
        """Replace the current log by the future log, which has caught up; return the former current
        log.
        """
        hosted, former = self.hosted, self.hosted.log
        while not self.copy_some():
            pass
        flushed_offset = self.log.flushed_offset
        self.log.seal()
        self.log.abort()
        name = partition_directory_name(hosted.topic, hosted.partition)
        self.home.world.disk.move_directory(self.directory, name)
        log = PartitionLog(
            self.home.world,
            hosted.topic,
            hosted.partition,
            hosted.settings.segments,
            on_rolled=on_rolled,
        )
        log.recover(
            lambda batch: None, verify_from_offset=None, on_unclean=lambda base_offset: None
        )
        log.advance_log_start(former.log_start_offset)
        log.flushed_offset = flushed_offset
        log.epochs = hosted.replica.epochs = hosted.replica.epochs_after_move(self.log.epochs)
        snapshots = self._parts.snapshots(self._shell.config)(self.home.world, log.directory)
        snapshots.take(hosted.replica.producer_state, log.log_end_offset)
        hosted.log, hosted.snapshots, hosted.home = log, snapshots, self.home
        former.abort()
        return former


class ReplicaMoves:
    """All moves in progress.

    `delete_files` deletes a partition's directory; `fail_directory` receives I/O errors of a log
    directory.
    """

    def __init__(
        self,
        shell: NodeShell,
        parts: PartitionParts,
        assignments: DirectoryAssignments,
        *,
        reports_directories: Callable[[], bool],
        delete_files: DeleteFiles,
        fail_directory: FailDirectory,
        on_rolled: Callable[[PartitionKey], None],
        settings: Callable[[], BrokerSettings],
    ) -> None:
        self._shell = shell
        self._parts = parts
        self._assignments = assignments
        self._reports_directories = reports_directories
        self._delete_files = delete_files
        self._fail_directory = fail_directory
        self._on_rolled = on_rolled
        self._pace = MovePace(shell.config, shell.world.clock, settings)
        self._under_way: dict[PartitionKey, ReplicaMove] = {}

    def of(self, key: PartitionKey) -> ReplicaMove | None:
        """Return the move of a replica, if it is in progress."""
        return self._under_way.get(key)

    def under_way(self) -> list[ReplicaMove]:
        """Return all moves in progress, by topic and number."""
        return [self._under_way[key] for key in sorted(self._under_way)]

    def begin(self, hosted: HostedPartition, home: LogDirectory) -> None:
        """Start to move a replica to another directory."""
        assert hosted.key not in self._under_way and hosted.home is not home, (
            "one move at a time, and to another directory"
        )
        unique = self._shell.world.random("future directories").randbytes(UUID_BYTES).hex()
        directory = future_directory_name(hosted.topic, hosted.partition, unique)
        move = self._under_way[hosted.key] = ReplicaMove(
            hosted, home, directory, self._parts, self._shell, self._pace
        )
        self._shell.world.emit(
            ReplicaMoveBegan(
                topic=hosted.topic,
                partition=hosted.partition,
                from_path=hosted.home.path,
                to_path=home.path,
            )
        )
        move.task = self._shell.tasks.spawn(
            self._run(move), f"move of {hosted.topic}-{hosted.partition}"
        )

    async def cancel(self, key: PartitionKey) -> None:
        """Cancel a move, and delete its future log."""
        move = self._under_way.pop(key, None)
        if move is None:
            return
        if move.task is not None:
            move.task.cancel()
            await asyncio.gather(move.task, return_exceptions=True)
        move.log.abort()
        hosted = move.hosted
        if (
            self._reports_directories() and hosted.home.is_online
        ):  # the controller may have the new directory already
            self._assignments.assign(hosted.topic_id, hosted.partition, hosted.home.directory_id)
        if move.home.is_online:
            await self._delete_files(move.home, move.directory)

    async def _run(self, move: ReplicaMove) -> None:
        source, former = move.hosted.home, move.hosted.log
        try:
            async with former.gate:
                await self._copy_all(move)
                await self._swap(move)
        except OSError as failure:
            where = move.home if former.is_open and not _is_unreadable(former) else source
            self._under_way.pop(move.hosted.key, None)
            self._fail_directory(
                where, move.directory if where is move.home else former.directory, "move", failure
            )

    async def _copy_all(self, move: ReplicaMove) -> None:
        """Return when the future log has caught up, is flushed, and the controller has the new
        directory.
        """
        await move.copy_all()
        await move.flush()
        if self._reports_directories():
            assigned: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            hosted = move.hosted
            self._assignments.assign(
                hosted.topic_id,
                hosted.partition,
                move.home.directory_id,
                lambda error: None if assigned.done() else assigned.set_result(error),
            )
            while not assigned.done():
                await move.copy_all()
                await asyncio.sleep(IDLE_SECONDS)
        await move.copy_all()
        await move.flush()

    async def _swap(self, move: ReplicaMove) -> None:
        hosted, source = move.hosted, move.hosted.home
        await move.home.forget_checkpoints(hosted.key)
        former = move.replace_current(lambda: self._on_rolled(hosted.key))
        del self._under_way[hosted.key]
        self._shell.world.emit(
            ReplicaMoved(
                topic=hosted.topic,
                partition=hosted.partition,
                from_path=source.path,
                to_path=move.home.path,
            )
        )
        await move.home.world.disk.flush_directory("")
        await hosted.flush()
        source.forget(hosted.key)
        await self._delete_files(source, former.directory)


def _is_unreadable(log: PartitionLog) -> bool:
    """Return whether a log is unreadable: then its directory failed, not the one it moves to."""
    try:
        log.read(log.log_start_offset, 1, log.log_end_offset)
    except OSError:
        return True
    return False
