"""The partitions that this broker hosts: opened when the metadata says so, led or not, flushed, checkpointed and closed together.

Source: kafka.server.ReplicaManager, kafka.log.LogManager.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from kraftsim.core.metadata.config_control import ALL_BROKERS
from kraftsim.core.metadata.image import ImageChanges, MetadataImage, TopicImage
from kraftsim.core.metadata.partition_registration import PartitionRegistration
from kraftsim.core.partitions.reign import Appointment, ReignRules
from kraftsim.events.nodes import DiskFailed
from kraftsim.node.broker.hosted_partition import HostedPartition
from kraftsim.node.broker.replication.replication import Replication
from kraftsim.node.broker.topic_settings import TopicSettings, topic_settings
from kraftsim.node.log import PartitionLog
from kraftsim.node.partition_recovery import recover_partition
from kraftsim.node.parts import Parts
from kraftsim.node.shell import NodeShell
from protocol.disk.clean_shutdown import build_clean_shutdown, parse_clean_shutdown
from protocol.disk.file_names import CLEAN_SHUTDOWN, LOG_START_OFFSETS, PARTITION_METADATA, RECOVERY_POINTS, REPLICATION_OFFSETS
from protocol.disk.offset_checkpoint import build_offset_checkpoint, parse_offset_checkpoint
from protocol.malformed import MalformedMessage
from protocol.metadata.m04_config import BROKER_RESOURCE, TOPIC_RESOURCE
from protocol.uuids import METADATA_TOPIC_ID, uuid_text

NO_BROKER_EPOCH = -1
PartitionKey = tuple[str, int]
"""Topic name and partition number."""
OnChanged = Callable[[PartitionKey], None]


class Partitions:
    """Every partition hosted here, by topic name and number. `on_changed` hears of each one whose leader changed."""

    def __init__(self, shell: NodeShell, parts: Parts, incarnation_id: bytes, on_changed: OnChanged, replication: Replication) -> None:
        self._shell = shell
        self._replication = replication
        self._incarnation_id = incarnation_id
        self._world = shell.world
        self._config = shell.config
        self._parts = parts
        self._on_changed = on_changed
        self._hosted: dict[PartitionKey, HostedPartition] = {}
        self._following = asyncio.Lock()
        """Held while partitions are hosted and deleted: one after the other."""
        self._was_stopped_cleanly = False
        self._is_in_office = False
        """Whether this incarnation has been seen in the metadata: before that it neither leads nor follows."""
        self._recovery_points: dict[PartitionKey, int] = {}
        self._high_watermarks: dict[PartitionKey, int] = {}
        self._log_starts: dict[PartitionKey, int] = {}

    def find(self, topic: str, partition: int) -> HostedPartition | None:
        """Return a partition that is hosted here, led or not."""
        return self._hosted.get((topic, partition))

    def hosted(self) -> list[HostedPartition]:
        """Return all that are hosted here, led or not, by topic name and number."""
        return [self._hosted[key] for key in sorted(self._hosted)]

    # Coming up and going down --------------------------------------------------------------------------------------------------------------

    async def load(self) -> int:
        """Read what the last stop left, and return the broker epoch of that stop if it was a clean one (else -1)."""
        disk = self._world.disk
        self._recovery_points = self._stored(RECOVERY_POINTS)  # without it every log is looked at from its beginning
        self._high_watermarks = self._stored(REPLICATION_OFFSETS)
        self._log_starts = self._stored(LOG_START_OFFSETS)
        if not disk.exists(CLEAN_SHUTDOWN):
            return NO_BROKER_EPOCH
        self._was_stopped_cleanly = True
        try:
            previous_broker_epoch = parse_clean_shutdown(disk.read(CLEAN_SHUTDOWN))
        except MalformedMessage:
            previous_broker_epoch = NO_BROKER_EPOCH
        disk.remove(CLEAN_SHUTDOWN)
        await disk.flush_directory("")  # or it would be back after a power loss, and vouch for logs that were not closed
        return previous_broker_epoch

    def _stored(self, file: str) -> dict[PartitionKey, int]:
        """Return the offsets that a checkpoint file of the last run holds; none if it cannot be read."""
        try:
            return parse_offset_checkpoint(self._world.disk.read(file), file) if self._world.disk.exists(file) else {}
        except MalformedMessage:
            return {}

    def begin_upkeep(self) -> None:
        """Start the tasks that checkpoint, flush and forget from time to time."""
        spawn = self._shell.tasks.spawn
        spawn(self._every(self._config.log_flush_offset_checkpoint_interval_ms, self._store_checkpoints), "checkpoints")
        spawn(self._every(self._config.replica_high_watermark_checkpoint_interval_ms, self._store_high_watermarks), "high watermarks")
        spawn(self._replication.shrink(self._hosted.values), "in-sync replicas")
        spawn(self._retain(), "retention")
        spawn(self._every(self._config.producer_id_expiration_check_interval_ms, self._expire_producers), "producer expiration")
        if self._config.log_flush_interval_ms is not None:
            spawn(self._every(self._config.log_flush_interval_ms, self._flush_all), "log flushes")

    async def close(self, broker_epoch: int) -> None:
        """Flush and close every log, and leave the mark of a clean stop."""
        for hosted in self._hosted.values():
            self._stand_down(hosted)
            hosted.seal()
            await self._flush(hosted)
            hosted.log.abort()
        await self._store_checkpoints()
        await self._world.disk.replace(CLEAN_SHUTDOWN, build_clean_shutdown(broker_epoch if self._parts.keeps_shutdown_epoch else None))

    def abort(self) -> None:
        """Give the files back as they are."""
        for hosted in self._hosted.values():
            hosted.log.abort()

    # Following the metadata ----------------------------------------------------------------------------------------------------------------

    async def follow(self, image: MetadataImage, changes: ImageChanges) -> None:
        """Host, lead, resign or delete the partitions that changed, by the settings that hold now."""
        async with self._following:
            await self._follow(image, changes)

    async def _follow(self, image: MetadataImage, changes: ImageChanges) -> None:
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
                await self._delete(hosted)
        if changes.configs:
            self._apply_settings(image, changes.configs)
        for topic, partition in there:
            try:
                await self._follow_one(image, topic, partition)
            except OSError as failure:
                self.disk_failed(f"{topic.name}-{partition}", "open", failure)
                raise
        if not self._is_in_office and self._is_meant(image):
            self._is_in_office = True
            await self._take_roles(image)

    async def _take_roles(self, image: MetadataImage) -> None:
        """This incarnation is registered: what the metadata said of its partitions before is now said of it."""
        for key, hosted in list(self._hosted.items()):
            registered = image.partition(*key)
            if registered is not None and self._config.node_id in registered.replicas:
                await self._take_role(image, hosted, registered)
                self._on_changed(key)

    async def remove_strays(self, image: MetadataImage) -> None:
        """Delete partitions on disk that are not this broker's any more, and host those whose place they held. The image must be up to date.

        They went while this broker was away, or while it was deleting them.   Source: LogManager.deleteStrayKRaftReplicas (KAFKA-14616).
        """
        async with self._following:
            await self._remove_strays(image)

    async def _remove_strays(self, image: MetadataImage) -> None:
        for directory in self._world.disk.list(""):
            name, _, number = directory.rpartition("-")
            topic_id = PartitionLog(self._world, name, int(number)).stored_topic_id() if name and number.isdecimal() else None
            if topic_id not in (None, METADATA_TOPIC_ID) and not self._is_replica(image, topic_id, int(number)):
                await self._delete_files(directory)
        for topic in list(image.topics()):
            for partition in sorted(topic.partitions):
                if self._is_replica(image, topic.topic_id, partition) and (topic.name, partition) not in self._hosted:
                    await self._follow_one(image, topic, partition)

    def _is_replica(self, image: MetadataImage, topic_id: bytes, partition: int) -> bool:
        topic = image.topic_by_id(topic_id)
        return topic is not None and partition in topic.partitions and self._config.node_id in topic.partitions[partition].replicas

    async def _follow_one(self, image: MetadataImage, topic: TopicImage, partition: int) -> None:
        registered = topic.partitions[partition]
        key = (topic.name, partition)
        hosted = self._hosted.get(key)
        if self._config.node_id not in registered.replicas:
            if hosted is not None:
                await self._delete(hosted)
            return
        if hosted is None or hosted.topic_id != topic.topic_id:
            hosted = await self._host(image, topic, partition)
            if hosted is None:
                return
        await self._take_role(image, hosted, registered)
        self._on_changed(key)

    def _stand_down(self, hosted: HostedPartition) -> None:
        """Neither lead nor follow."""
        hosted.replica.resign()
        self._replication.leave((hosted.topic, hosted.partition))

    async def _take_role(self, image: MetadataImage, hosted: HostedPartition, registered: PartitionRegistration) -> None:
        """Lead, or follow whoever leads."""
        if not self._is_meant(image):
            self._stand_down(hosted)
            return
        if registered.leader != self._config.node_id:
            following = hosted.replica.follow(registered.leader, registered.leader_epoch)
            if following is not None:
                await self._replication.follow(hosted, following)
            return
        self._replication.leave((hosted.topic, hosted.partition))
        appointment = Appointment(
            leader_epoch=registered.leader_epoch,
            partition_epoch=registered.partition_epoch,
            replicas=registered.replicas,
            isr=registered.isr,
        )
        rules = ReignRules(
            lag_max_ms=self._config.replica_lag_time_max_ms,
            min_in_sync=hosted.settings.rules.min_in_sync_replicas,
            waits_for_min_in_sync=self._parts.bounds_min_in_sync_replicas,
        )
        now_ms = self._world.clock.wall_ms()
        if hosted.replica.lead(appointment, now_ms=now_ms, rules=rules, eligible=self._replication.is_eligible):
            await hosted.log.store_epochs()

    def _is_meant(self, image: MetadataImage) -> bool:
        """Tell whether this incarnation is the one that the metadata speaks of: what an earlier one led is not ours until it is given to us."""
        registered = image.broker(self._config.node_id)
        return registered is not None and registered.incarnation_id == self._incarnation_id

    def _apply_settings(self, image: MetadataImage, changed: Collection[tuple[int, str]]) -> None:
        """Let the present settings hold for partitions whose topic, or whose broker, has other ones (those of segments from the next opening on)."""
        concerns_all = any(resource in changed for resource in ((BROKER_RESOURCE, ALL_BROKERS), (BROKER_RESOURCE, str(self._config.node_id))))
        for hosted in self._hosted.values():
            registered = image.partition(hosted.topic, hosted.partition)
            if registered is not None and (concerns_all or (TOPIC_RESOURCE, hosted.topic) in changed):
                hosted.settings = self._settings(image, hosted.topic, len(registered.replicas))
                hosted.replica.rules = hosted.settings.rules

    def _settings(self, image: MetadataImage, topic: str, replica_count: int) -> TopicSettings:
        bounds = self._parts.bounds_min_in_sync_replicas
        return topic_settings(self._config, image, topic, replica_count=replica_count, bounds_min_in_sync_replicas=bounds)

    async def _delete(self, hosted: HostedPartition) -> None:
        """Host a partition no longer, and delete its files: its topic is gone, or it lives on other brokers now."""
        key = (hosted.topic, hosted.partition)
        self._stand_down(hosted)
        hosted.log.abort()
        del self._hosted[key]
        self._recovery_points.pop(key, None)
        self._high_watermarks.pop(key, None)
        self._log_starts.pop(key, None)
        await self._delete_files(hosted.log.directory)
        self._on_changed(key)

    async def _delete_files(self, directory: str) -> None:
        """Delete what is in a partition's directory; the file that says whose it was goes last, so that what a crash leaves is nobody else's log."""
        disk = self._world.disk
        try:
            for name in sorted(disk.list(directory), key=lambda name: (name == PARTITION_METADATA, name)):
                disk.remove(f"{directory}/{name}")
            await disk.flush_directory(directory)
        except OSError as failure:
            self.disk_failed(directory, "delete", failure)
            raise

    async def _host(self, image: MetadataImage, topic: TopicImage, partition: int) -> HostedPartition | None:
        """Open the log of a partition, recovering it where there is one. None if its directory belongs to another topic of the same name."""
        settings = self._settings(image, topic.name, len(topic.partitions[partition].replicas))
        key = (topic.name, partition)
        log = PartitionLog(self._world, topic.name, partition, settings.segments, on_rolled=lambda: self._on_rolled(key))
        owner = log.stored_topic_id()
        if owner is not None and owner != topic.topic_id:
            why = f"the directory belongs to topic id {uuid_text(owner)}, not {uuid_text(topic.topic_id)}"
            self._world.note(DiskFailed(path=log.directory, operation="open", reason=why))
            return None
        is_new = not self._world.disk.list(log.directory)
        producer_state = self._parts.producer_state(self._config)
        recovery_point = None if is_new or self._was_stopped_cleanly else self._recovery_points.get(key, 0)
        snapshots = recover_partition(
            self._world,
            log,
            producer_state,
            recovery_point=recovery_point,
            log_start_offset=self._log_starts.get(key, 0),
            snapshots_of=self._parts.producer_snapshots,
        )
        if owner is None:
            await log.store_topic_id(topic.topic_id)
        replica = self._parts.partition_replica(
            topic=topic.name,
            partition=partition,
            replica_id=self._config.node_id,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            epochs=log.epochs,
            producer_state=producer_state,
            rules=settings.rules,
            note=self._world.note,
            high_watermark=self._high_watermarks.get(key),
        )
        hosted = self._hosted[key] = HostedPartition(topic.topic_id, log, replica, settings, snapshots)
        return hosted

    # Flushing ------------------------------------------------------------------------------------------------------------------------------

    def flush_then(self, owing: Sequence[HostedPartition], on_flushed: Callable[[], None]) -> None:
        """Flush the logs of some partitions, then go on."""

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
        try:
            await hosted.flush()
        except OSError as failure:
            if self._hosted.get((hosted.topic, hosted.partition)) is not hosted:
                return  # it was deleted meanwhile
            self.disk_failed(hosted.log.directory, "flush", failure)
            raise

    def disk_failed(self, path: str, operation: str, failure: OSError) -> None:
        """A disk that lost something cannot be trusted with anything: the node goes down, as Kafka's does when its only directory fails."""
        self._shell.lose_disk(path, operation, failure)

    # Upkeep --------------------------------------------------------------------------------------------------------------------------------

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await work()

    async def _store_checkpoints(self) -> None:
        """Write how far each log is durable, how far it is replicated, and where it begins."""
        hosted = self._hosted
        await self._store(RECOVERY_POINTS, {key: each.log.flushed_offset for key, each in hosted.items()})
        await self._store_high_watermarks()
        await self._store(LOG_START_OFFSETS, {key: each.log.log_start_offset for key, each in hosted.items()})

    async def _store_high_watermarks(self) -> None:
        """Write how far each log is replicated: what its next run goes by if it is not its leader."""
        await self._store(REPLICATION_OFFSETS, {key: each.replica.high_watermark for key, each in self._hosted.items()})

    async def _store(self, file: str, offsets: Mapping[PartitionKey, int]) -> None:
        try:
            await self._world.disk.replace(file, build_offset_checkpoint(dict(sorted(offsets.items()))))
        except OSError as failure:
            self.disk_failed(file, "write", failure)
            raise

    async def _retain(self) -> None:
        """Delete what is too old, for ever."""
        await asyncio.sleep(self._config.log_initial_task_delay_ms / 1000)
        await self._delete_expired()
        await self._every(self._config.log_retention_check_interval_ms, self._delete_expired)

    async def _delete_expired(self) -> None:
        now_ms = self._world.clock.wall_ms()
        for hosted in list(self._hosted.values()):
            try:
                if hosted.delete_expired(now_ms):
                    await hosted.log.store_epochs()
                    self._on_changed((hosted.topic, hosted.partition))
            except OSError as failure:
                self.disk_failed(hosted.log.directory, "delete", failure)
                raise

    async def _expire_producers(self) -> None:
        now_ms = self._world.clock.wall_ms()
        for hosted in self._hosted.values():
            hosted.replica.expire_producers(now_ms)

    async def _flush_all(self) -> None:
        for hosted in list(self._hosted.values()):
            await self._flush(hosted)
