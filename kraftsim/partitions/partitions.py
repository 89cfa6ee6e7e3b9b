"""The partitions that this broker hosts: opened by the metadata, leader or follower; flushed,
checkpointed and closed together.

Source: kafka.server.ReplicaManager, kafka.log.LogManager.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Protocol

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_configs import ALL_BROKERS
from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.metadata.rules_image import ImageChanges, MetadataImage, TopicImage
from kraftsim.metadata.rules_registrations import PartitionRegistration
from kraftsim.metadata.topic_settings import TopicSettings, broker_settings, topic_settings
from kraftsim.partitions.checkpoints import Checkpoints
from kraftsim.partitions.directory_assignments import DirectoryAssignments
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_cleaner import LogCleaner, RetentionUpkeep
from kraftsim.partitions.log_directory import LogDirectories, LogDirectory
from kraftsim.partitions.log_directory import PartitionKey as PartitionKey
from kraftsim.partitions.partition_opening import PartitionParts, open_partition
from kraftsim.partitions.replica_moves import ReplicaMoves
from kraftsim.partitions.replication import Replication
from kraftsim.partitions.rules_leader import LeaderAndIsrState, LeaderRules
from kraftsim.partitions.settings_in_use import SettingsInUse
from kraftsim.producer_state.rules_entries import ProducerStatePolicy
from kraftsim.server.events import DiskFailed, LogDirectoryFailed
from kraftsim.server.identity import METADATA_DIRECTORY, NO_DIRECTORY_ID
from kraftsim.server.shell import NodeShell
from kraftsim.server.tasks import at_once
from protocol.metadata.settings import BROKER_RESOURCE, TOPIC_RESOURCE
from protocol.storage.file_names import (
    PARTITION_METADATA,
    parse_future_directory_name,
    partition_directory_name,
)
from protocol.uuids import METADATA_TOPIC_ID, uuid_text

OnChanged = Callable[[PartitionKey], None]


class Partitions:
    """Every hosted partition, by topic name and number.

    `on_changed` is called for each one whose leader or high watermark has changed.

    `settings` returns the current broker configuration; `on_offline` receives a failed log
    directory while others are online.
    """

    def __init__(
        self,
        shell: NodeShell,
        parts: PartitionParts,
        incarnation_id: bytes,
        on_changed: OnChanged,
        replication: Replication,
        *,
        settings: Callable[[], BrokerSettings],
        on_offline: Callable[[LogDirectory], None],
        assignments: DirectoryAssignments,
    ) -> None:
        self._shell = shell
        self._replication = replication
        self._incarnation_id = incarnation_id
        self._world = shell.world
        self._config = shell.config
        self._parts = parts
        self._on_changed = on_changed
        self._hosted: dict[PartitionKey, HostedPartition] = {}
        self._following = asyncio.Lock()
        """Held while partitions are hosted or deleted: metadata changes are applied one after the
        other.
        """
        self._new_leaderships: list[HostedPartition] = []
        """Partitions that this broker leads in a leader epoch that is not stored yet."""
        self._in_use = SettingsInUse(shell.world.emit)
        self._is_registered = False
        """Whether the metadata contains the registration of this incarnation: before that it
        neither leads nor follows.
        """
        self.directories = LogDirectories(shell.world, shell.config)
        self.on_tiering: Callable[[HostedPartition], None] = lambda hosted: None
        """Called for partitions whose remote storage was enabled or disabled, or whose topic was
        deleted.
        """
        self._offline: dict[PartitionKey, None] = {}
        """Partitions that are, or may be, in a failed log directory."""
        self._on_offline = on_offline
        self._assignments = assignments
        self.moves = ReplicaMoves(
            shell,
            parts,
            assignments,
            reports_directories=lambda: self._is_registered and self._has_directories,
            delete_files=self._delete_files,
            fail_directory=self._fail_directory,
            on_rolled=self._on_rolled,
            settings=settings,
        )
        self._has_directories = False
        """Whether metadata.version supports log directories."""
        self._opened: dict[str, None] = {}
        """Log directories of which every log was opened, and recovered if necessary."""
        self._checkpoints = Checkpoints(
            lambda: self.directories.online, self._hosted.values, self._in, self._are_open
        )
        self._requested_paths: dict[PartitionKey, str] = {}
        """The requested log directories of partitions that are not hosted yet."""
        self._retention = RetentionUpkeep(
            shell, self._hosted.values, on_changed, self._fail_directory
        )
        self.cleaner = LogCleaner(
            shell,
            hosted=self.hosted,
            settings=settings,
            delete_expired=self._retention.delete_expired_of,
            disk_failed=self.disk_failed,
        )

    def find(self, topic: str, partition: int) -> HostedPartition | None:
        """Return a hosted partition, leader or follower."""
        return self._hosted.get((topic, partition))

    def is_offline(self, topic: str, partition: int) -> bool:
        """Return whether a partition of this broker is offline because a log directory failed."""
        return (topic, partition) in self._offline

    def hosted(self) -> list[HostedPartition]:
        """Return all hosted partitions, by topic name and number."""
        return [self._hosted[key] for key in sorted(self._hosted)]

    # Startup and shutdown
    # ----------------------------------------------------------------------------------------------

    async def load(self, directory_id: bytes) -> int:
        """Load the checkpoints, and return the broker epoch of the last shutdown if it was a clean
        one (else -1).

        `directory_id` is that of the data directory. Raises ConfigError, OSError.
        """
        return await self.directories.open(directory_id)

    def begin_upkeep(self) -> None:
        """Start the periodic tasks: checkpoints, retention, producer expiration, flushes."""
        spawn = self._shell.tasks.spawn
        spawn(
            self._every(
                self._config.log_flush_offset_checkpoint_interval_ms, self._checkpoints.store
            ),
            "checkpoints",
        )
        spawn(
            self._every(
                self._config.replica_high_watermark_checkpoint_interval_ms,
                self._checkpoints.store_high_watermarks,
            ),
            "high watermarks",
        )
        spawn(self._replication.shrink(self._hosted.values), "in-sync replicas")
        spawn(self._retain(), "retention")
        self.cleaner.begin()
        spawn(
            self._every(
                self._config.producer_id_expiration_check_interval_ms, self._expire_producers
            ),
            "producer expiration",
        )
        if self._config.log_flush_interval_ms is not None:
            spawn(self._every(self._config.log_flush_interval_ms, self._flush_all), "log flushes")

    async def close(self, broker_epoch: int) -> None:
        """Flush and close every log, and write the clean shutdown files.

        The tasks of the node have ended.
        """
        for hosted in self._hosted.values():
            self._stand_down(hosted)
        await at_once([partial(self._close_one, hosted) for hosted in self._hosted.values()])
        await self._checkpoints.store()
        for directory in self.directories.online:
            if self._are_open(directory):
                epoch = broker_epoch
            elif directory.was_stopped_cleanly:
                epoch = directory.shutdown_epoch  # its logs are as they were then
            else:
                continue
            kept = epoch if self._parts.keeps_shutdown_epoch else None
            await self._in(directory, "write", partial(directory.mark_clean_stop, kept))

    def _are_open(self, home: LogDirectory) -> bool:
        """Return whether every log of a directory was opened: a broker that stops before it has
        caught up with the metadata has opened none.

        Source: LogManager.shutdown (loadLogsCompletedFlags).
        """
        if home.path in self._opened:
            return True
        open_here = {each.log.directory for each in self._hosted.values() if each.home is home}
        try:
            names = home.world.disk.list("")
        except OSError as failure:
            self._fail_directory(home, home.path, "list", failure)
            return False
        if all(
            name in open_here
            for name in names
            if name != METADATA_DIRECTORY and name.rpartition("-")[2].isdecimal()
        ):
            self._opened[home.path] = None
        return home.path in self._opened

    async def _close_one(self, hosted: HostedPartition) -> None:
        try:
            hosted.seal()
        except OSError as failure:
            self._fail_directory(hosted.home, hosted.log.directory, "write", failure)
        await self._flush(hosted)
        hosted.log.abort()

    def abort(self) -> None:
        """Close the files without flushing."""
        for hosted in self._hosted.values():
            hosted.log.abort()

    # Metadata changes
    # ----------------------------------------------------------------------------------------------

    async def follow(self, image: MetadataImage, changes: ImageChanges) -> None:
        """Host, lead, follow or delete the changed partitions, and apply the current configs."""
        async with self._following:
            await self._follow(image, changes)

    async def _follow(self, image: MetadataImage, changes: ImageChanges) -> None:
        self._has_directories = image.metadata_level.has_directories
        there: list[tuple[TopicImage, int]] = []
        gone: dict[tuple[bytes, int], None] = {}
        for topic_id, partition in changes.partitions:
            topic = image.topic_by_id(topic_id)
            if topic is None or partition not in topic.partitions:
                gone[topic_id, partition] = None
            else:
                there.append((topic, partition))
        for hosted in list(self._hosted.values()) if gone else ():
            if (hosted.topic_id, hosted.partition) in gone:
                self.on_tiering(hosted)
                await self._delete(hosted)
        if changes.configs:
            self._apply_settings(image, changes.configs)
        await self._follow_all(image, there)
        if not self._is_registered and self._is_meant(image):
            self._is_registered = True
            await self._apply_roles(image)
        self._replication.leave_idle()
        await self._store_new_epochs()

    async def _follow_all(
        self, image: MetadataImage, there: Sequence[tuple[TopicImage, int]]
    ) -> None:
        await self._host_missing(image, there)
        for topic, partition in there:
            await self._follow_one(image, topic, partition)

    async def _store_new_epochs(self) -> None:
        """Store the leader epochs of the partitions that this broker has become leader of."""
        led, self._new_leaderships = self._new_leaderships, []
        await at_once(
            [partial(self._in, hosted.home, "write", hosted.log.store_epochs) for hosted in led]
        )

    async def _apply_roles(self, image: MetadataImage) -> None:
        """This incarnation is registered: apply the leader and follower roles of its partitions."""
        for key, hosted in list(self._hosted.items()):
            registered = image.partition(*key)
            if registered is not None and self._config.node_id in registered.replicas:
                self._report_directory(image, hosted, registered)
                await self._apply_role(image, hosted, registered)
                self._on_changed(key)

    async def remove_strays(self, image: MetadataImage) -> None:
        """Delete partitions on disk that this broker is no longer a replica of, then host those of
        the same name. The image must be current.

        They were deleted or reassigned while this broker was down or deleting them.
        Source: LogManager.deleteStrayKRaftReplicas (KAFKA-14616).
        """
        async with self._following:
            await self._remove_strays(image)

    async def _remove_strays(self, image: MetadataImage) -> None:
        for home in self.directories.online:
            try:
                for directory in self._strays_in(home, image):
                    await self._delete_files(home, directory)
                await self._restart_moves(home)
            except OSError as failure:
                self._fail_directory(home, home.path, "list", failure)
        missing = [
            (topic, partition)
            for topic in image.topics()
            for partition in sorted(topic.partitions)
            if self._is_replica(image, topic.topic_id, partition)
            and (topic.name, partition) not in self._hosted
        ]
        await self._follow_all(image, missing)
        await self._store_new_epochs()

    async def _restart_moves(self, home: LogDirectory) -> None:
        """Restart the moves that the last run had not completed."""
        for name in home.world.disk.list(""):
            parsed = parse_future_directory_name(name)
            if parsed is not None and home.world.disk.list(name):
                await self._delete_files(home, name)
                hosted = self._hosted.get((parsed.topic, parsed.partition))
                if (
                    hosted is not None
                    and hosted.home is not home
                    and self.moves.of(hosted.key) is None
                ):
                    self.moves.begin(hosted, home)

    async def move(self, topic: str, partition: int, home: LogDirectory) -> bool:
        """Move a replica to a directory, or store the request for one that is not hosted yet.

        Returns False in that case.
        """
        key = (topic, partition)
        under_way = self.moves.of(key)
        if under_way is not None and under_way.home is not home:
            await self.moves.cancel(key)
        hosted = self._hosted.get(key)
        if hosted is None:
            self._requested_paths[key] = home.path
            return False
        if hosted.home is not home and self.moves.of(key) is None:
            self.moves.begin(hosted, home)
        return True

    def _strays_in(self, home: LogDirectory, image: MetadataImage) -> Iterator[str]:
        for directory in home.world.disk.list(""):
            name, _, number = directory.rpartition("-")
            topic_id = (
                PartitionLog(home.world, name, int(number)).stored_topic_id()
                if name and number.isdecimal()
                else None
            )
            if topic_id not in (None, METADATA_TOPIC_ID) and not self._is_replica(
                image, topic_id, int(number)
            ):
                yield directory

    def _is_replica(self, image: MetadataImage, topic_id: bytes, partition: int) -> bool:
        topic = image.topic_by_id(topic_id)
        return (
            topic is not None
            and partition in topic.partitions
            and self._config.node_id in topic.partitions[partition].replicas
        )

    async def _follow_one(self, image: MetadataImage, topic: TopicImage, partition: int) -> None:
        registered = topic.partitions[partition]
        key = (topic.name, partition)
        hosted = self._hosted.get(key)
        if self._config.node_id not in registered.replicas:
            self._offline.pop(key, None)
            if hosted is not None:
                await self._delete(hosted)
            return
        if hosted is None or hosted.topic_id != topic.topic_id:
            return  # it could not be opened
        if len(registered.replicas) != hosted.settings.replica_count:
            self._use_settings(image, hosted, registered)
        self._report_directory(image, hosted, registered)
        await self._apply_role(image, hosted, registered)
        self._on_changed(key)

    def _report_directory(
        self, image: MetadataImage, hosted: HostedPartition, registered: PartitionRegistration
    ) -> None:
        """Report the directory of a replica to the controller, unless it is known there."""
        directory_id = hosted.home.directory_id
        is_known = (
            registered.directory_of(self._config.node_id) == directory_id
            or self.moves.of(hosted.key) is not None
        )
        if (
            not is_known
            and image.metadata_level.has_directories
            and directory_id != NO_DIRECTORY_ID
            and self._is_meant(image)
        ):
            self._assignments.assign(hosted.topic_id, hosted.partition, directory_id)

    def _stand_down(self, hosted: HostedPartition) -> None:
        """Become neither leader nor follower."""
        hosted.replica.resign()
        self._replication.leave((hosted.topic, hosted.partition))

    async def _apply_role(
        self, image: MetadataImage, hosted: HostedPartition, registered: PartitionRegistration
    ) -> None:
        """Become leader or follower, as registered."""
        if not self._is_meant(image):
            self._stand_down(hosted)
            return
        if registered.leader != self._config.node_id:
            following = hosted.replica.follow(registered.leader, registered.leader_epoch)
            if following is not None:
                await self._replication.follow(hosted, following)
            return
        self._replication.leave((hosted.topic, hosted.partition))
        leader_and_isr = LeaderAndIsrState(
            leader_epoch=registered.leader_epoch,
            partition_epoch=registered.partition_epoch,
            replicas=registered.replicas,
            isr=registered.isr,
        )
        if hosted.replica.lead(
            leader_and_isr,
            now_ms=self._world.clock.wall_ms(),
            rules=self._leader_rules(hosted),
            eligible=self._replication.is_eligible,
        ):
            self._new_leaderships.append(hosted)
        self._in_use.report(hosted, image.topic_configs(hosted.topic))
        if (
            hosted.owes_flush
        ):  # follower fetches wait for the flush, which no append may ever trigger
            self._shell.tasks.spawn(
                self._flush(hosted), f"flush of {hosted.topic}-{hosted.partition}"
            )

    def _is_meant(self, image: MetadataImage) -> bool:
        """Return whether the metadata is about this incarnation: leaderships of an earlier one do
        not apply before it is registered.
        """
        registered = image.broker(self._config.node_id)
        return registered is not None and registered.incarnation_id == self._incarnation_id

    def _apply_settings(self, image: MetadataImage, changed: Collection[tuple[int, str]]) -> None:
        """Apply the current configs to partitions whose topic or broker configs have changed."""
        concerns_all = any(
            resource in changed
            for resource in (
                (BROKER_RESOURCE, ALL_BROKERS),
                (BROKER_RESOURCE, str(self._config.node_id)),
            )
        )
        for hosted in self._hosted.values():
            registered = image.partition(hosted.topic, hosted.partition)
            if registered is not None and (
                concerns_all or (TOPIC_RESOURCE, hosted.topic) in changed
            ):
                self._use_settings(image, hosted, registered)
                hosted.log.roll_by(hosted.settings.segments)
                if hosted.tier(hosted.settings.tiering.is_tiered):
                    self.on_tiering(hosted)
                self._in_use.report(hosted, image.topic_configs(hosted.topic))
            if concerns_all:
                hosted.replica.producer_state.use_policy(self._producer_policy(image))

    def _use_settings(
        self, image: MetadataImage, hosted: HostedPartition, registered: PartitionRegistration
    ) -> None:
        """Apply the configs of the topic to appends, and to the high watermark if this broker leads
        (Partition.effectiveMinIsr).
        """
        hosted.settings = self._settings(image, hosted.topic, len(registered.replicas))
        hosted.replica.rules = hosted.settings.rules
        if hosted.replica.leader_state is not None:
            hosted.replica.leader_state.rules = self._leader_rules(hosted)

    def _leader_rules(self, hosted: HostedPartition) -> LeaderRules:
        return LeaderRules(
            lag_max_ms=self._config.replica_lag_time_max_ms,
            min_in_sync=hosted.settings.rules.min_in_sync_replicas,
            waits_for_min_in_sync=self._parts.bounds_min_in_sync_replicas,
        )

    def _producer_policy(self, image: MetadataImage) -> ProducerStatePolicy:
        return self._parts.producer_policy(self._config, broker_settings(self._config, image))

    def _settings(self, image: MetadataImage, topic: str, replica_count: int) -> TopicSettings:
        bounds = self._parts.bounds_min_in_sync_replicas
        return topic_settings(
            self._config,
            image,
            topic,
            replica_count=replica_count,
            bounds_min_in_sync_replicas=bounds,
        )

    async def _delete(self, hosted: HostedPartition) -> None:
        """Stop hosting a partition, and delete its files: its topic was deleted, or it was
        reassigned.
        """
        self._stand_down(hosted)
        await self.moves.cancel(hosted.key)
        async with hosted.log.gate:
            hosted.log.abort()
            if self._hosted.get(hosted.key) is hosted:
                del self._hosted[hosted.key]
            hosted.home.forget(hosted.key)
            await self._delete_files(hosted.home, hosted.log.directory)
        self._on_changed(hosted.key)

    async def _delete_files(self, home: LogDirectory, directory: str) -> None:
        """Delete a partition's directory; partition.metadata goes last, so that files left by a
        crash are never taken for another topic's log.
        """
        disk = home.world.disk
        try:
            for name in sorted(
                disk.list(directory), key=lambda name: (name == PARTITION_METADATA, name)
            ):
                disk.remove(f"{directory}/{name}")
            await disk.flush_directory(directory)
        except OSError as failure:
            self._fail_directory(home, directory, "delete", failure)

    async def _host_missing(
        self, image: MetadataImage, there: Sequence[tuple[TopicImage, int]]
    ) -> None:
        """Open the missing logs of assigned partitions, several concurrently, in their directory or
        in a newly chosen one.
        """
        missing, taken = [], self.directories.taken(each.home for each in self._hosted.values())
        for topic, partition in there:
            registered, hosted = (
                topic.partitions[partition],
                self._hosted.get((topic.name, partition)),
            )
            if self._config.node_id in registered.replicas and (
                hosted is None or hosted.topic_id != topic.topic_id
            ):
                home = await self._find_home((topic.name, partition), registered, taken)
                if home is None:
                    self._offline[topic.name, partition] = None
                else:
                    missing.append(partial(self._host, image, topic, partition, home))
        await at_once(missing)

    async def _find_home(
        self, key: PartitionKey, registered: PartitionRegistration, taken: dict[int, int]
    ) -> LogDirectory | None:
        """Return the directory of a partition.

        `taken` counts the partitions of each directory, and is updated.
        """
        assigned_id = registered.directory_of(self._config.node_id)
        homes = self.directories.holding(key, assigned_id, self._fail_directory)
        for stray in homes[1:]:
            await self._delete_files(stray, partition_directory_name(*key))
        is_new = not registered.partition_epoch
        home = (
            homes[0]
            if homes
            else self.directories.place_for(
                key, assigned_id, is_new=is_new, taken=taken, wish=self._requested_paths.get(key)
            )
        )
        if home is not None:
            place = self.directories.all.index(home)
            taken[place] = taken.get(place, 0) + 1
        return home

    async def _host(
        self, image: MetadataImage, topic: TopicImage, partition: int, home: LogDirectory
    ) -> None:
        key = (topic.name, partition)
        settings = self._settings(image, topic.name, len(topic.partitions[partition].replicas))
        try:
            hosted = await open_partition(
                home,
                topic,
                partition,
                settings,
                shell=self._shell,
                parts=self._parts,
                on_rolled=lambda: self._on_rolled(key),
            )
        except OSError as failure:
            self._fail_directory(home, f"{topic.name}-{partition}", "open", failure)
            self._offline[key] = None
            return
        if hosted is not None and not home.is_online:  # the directory failed during the recovery
            hosted.log.abort()
            self._offline[key] = None
        elif hosted is not None:
            hosted.replica.producer_state.use_policy(self._producer_policy(image))
            self._hosted[key] = hosted
            self._offline.pop(key, None)
            self._requested_paths.pop(key, None)

    # Flushing
    # ----------------------------------------------------------------------------------------------

    def flush_then(self, owing: Sequence[HostedPartition], on_flushed: Callable[[], None]) -> None:
        """Flush the logs of some partitions, then call `on_flushed`."""

        async def flush_and_go_on() -> None:
            for partition in owing:
                await self._flush(partition)
            on_flushed()

        self._shell.tasks.spawn(flush_and_go_on(), "flush before the answer")

    def _on_rolled(self, key: PartitionKey) -> None:
        hosted = self._hosted.get(key)
        if hosted is not None:
            hosted.take_snapshot()
            self._shell.tasks.spawn(self._flush(hosted), f"flush of {key[0]}-{key[1]}")

    async def _flush(self, hosted: HostedPartition) -> None:
        if not hosted.log.is_open:
            return  # its directory failed, or the partition was deleted
        is_waited_for = hosted.owes_flush
        try:
            await hosted.flush()
            if is_waited_for:
                self._on_changed((hosted.topic, hosted.partition))
        except OSError as failure:
            if self._hosted.get(hosted.key) is hosted:  # otherwise it was deleted in the meantime
                self._fail_directory(hosted.home, hosted.log.directory, "flush", failure)

    # Failures
    # ----------------------------------------------------------------------------------------------

    def disk_failed(self, path: str, operation: str, failure: OSError) -> None:
        """An I/O operation failed on the partition directory `path`: fail its log directory."""
        hosted = next((each for each in self._hosted.values() if each.log.directory == path), None)
        if hosted is not None:
            self._fail_directory(hosted.home, path, operation, failure)

    async def _in(
        self, home: LogDirectory, operation: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Write a file of a log directory; an I/O error fails the directory."""
        try:
            await work()
        except OSError as failure:
            self._fail_directory(home, home.path, operation, failure)

    def _fail_directory(
        self, home: LogDirectory, path: str, operation: str, failure: OSError
    ) -> None:
        """Fail a log directory: its partitions go offline.

        If it is the last one, or cannot be reported to the controller, the node fails.
        """
        if not home.is_online or self._shell.is_dead:
            return
        if len(self.directories.online) == 1 or home.directory_id == NO_DIRECTORY_ID:
            self._shell.fail_disk(path, operation, failure)
            return
        self._world.emit(DiskFailed(path=path, operation=operation, reason=str(failure)))
        home.take_offline(failure)
        for move in self.moves.under_way():
            if home in (move.home, move.hosted.home):
                self._shell.tasks.spawn(self.moves.cancel(move.hosted.key), "cancel move")
        lost = [hosted for hosted in self.hosted() if hosted.home is home]
        for hosted in lost:
            self._stand_down(hosted)
            hosted.log.abort()
            del self._hosted[hosted.key]
            self._offline[hosted.key] = None
        self._world.emit(
            LogDirectoryFailed(
                path=home.path, directory_id=uuid_text(home.directory_id), partition_count=len(lost)
            )
        )
        self._on_offline(home)
        for hosted in lost:
            self._on_changed(hosted.key)

    # Periodic tasks
    # ----------------------------------------------------------------------------------------------

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await work()

    async def _retain(self) -> None:
        """Delete expired segments, periodically."""
        await asyncio.sleep(self._config.log_initial_task_delay_ms / 1000)
        await self._retention.delete_expired()
        await self._every(
            self._config.log_retention_check_interval_ms, self._retention.delete_expired
        )

    async def _expire_producers(self) -> None:
        for hosted in self._hosted.values():
            hosted.replica.expire_producers(self._world.clock.wall_ms())

    async def _flush_all(self) -> None:
        for hosted in list(self._hosted.values()):
            await self._flush(hosted)


class HostingBroker(Protocol):
    """A broker that hosts partitions."""

    @property
    def partitions(self) -> Partitions:
        """The hosted partitions."""
        ...

    def not_hosted_error(self, topic: str, partition: int) -> Refusal:
        """Return the error for a partition that is not hosted: UNKNOWN_TOPIC_OR_PARTITION,
        KAFKA_STORAGE_ERROR or NOT_LEADER_OR_FOLLOWER.
        """
        ...
