"""Opens the log of a partition that a broker hosts, with recovery if it exists.

Source: kafka.log.LogManager.getOrCreateLog, kafka.cluster.Partition.createLogIfNotExists.
"""

from collections.abc import Callable
from typing import Protocol

from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.metadata.rules_image import TopicImage
from kraftsim.metadata.topic_settings import TopicSettings
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_directory import LogDirectory
from kraftsim.partitions.partition_recovery import recover_partition
from kraftsim.partitions.producer_snapshots import ProducerSnapshots
from kraftsim.partitions.rules_replica import PartitionReplica
from kraftsim.partitions.segment_swap import finish_swaps
from kraftsim.producer_state.rules_entries import ProducerStatePolicy
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.server.config import NodeConfig
from kraftsim.server.events import DiskFailed
from kraftsim.server.shell import NodeShell
from protocol.uuids import uuid_text


class PartitionParts(Protocol):
    """The replaceable classes of hosted partitions."""

    @property
    def partition_replica(self) -> type[PartitionReplica]:
        """The rules of one replica."""
        ...

    @property
    def keeps_shutdown_epoch(self) -> bool:
        """Whether a clean shutdown stores the broker epoch (KIP-966)."""
        ...

    @property
    def bounds_min_in_sync_replicas(self) -> bool:
        """Whether min.insync.replicas is bounded by the replication factor."""
        ...

    def producer_state(self, config: NodeConfig) -> ProducerStateManager:
        """Create the producer state of one partition."""
        ...

    def producer_policy(
        self, config: NodeConfig, settings: BrokerSettings | None = None
    ) -> ProducerStatePolicy:
        """Return the producer validation policy."""
        ...

    def snapshots(self, config: NodeConfig) -> type[ProducerSnapshots]:
        """Return the producer snapshot implementation."""
        ...


async def open_partition(
    home: LogDirectory,
    topic: TopicImage,
    partition: int,
    settings: TopicSettings,
    *,
    shell: NodeShell,
    parts: PartitionParts,
    on_rolled: Callable[[], None],
) -> HostedPartition | None:
    """Return a partition in one of the log directories.

    None if its directory belongs to another topic of the same name. Raises OSError.
    """
    key = (topic.name, partition)
    world, config = shell.world, shell.config
    log = PartitionLog(home.world, topic.name, partition, settings.segments, on_rolled=on_rolled)
    owner = log.stored_topic_id()
    if owner is not None and owner != topic.topic_id:
        why = (
            f"the directory belongs to topic id {uuid_text(owner)}, not {uuid_text(topic.topic_id)}"
        )
        world.emit(DiskFailed(path=log.directory, operation="open", reason=why))
        return None
    await finish_swaps(home.world.disk, log.directory)
    is_new = not home.world.disk.list(log.directory)
    if is_new:
        await home.forget_checkpoints(key)
    producer_state = parts.producer_state(config)
    snapshots = recover_partition(
        home.world,
        log,
        producer_state,
        recovery_point=None if is_new else home.recovery_point(key),
        log_start_offset=home.log_start(key),
        snapshots_of=parts.snapshots(config),
        is_tiered=settings.tiering.is_tiered,
        chained_from=None if is_new else home.uncleaned_from(key),
    )
    await log.complete_truncation()
    if owner is None:
        await log.store_topic_id(topic.topic_id)
    replica = parts.partition_replica(
        topic=topic.name,
        partition=partition,
        replica_id=config.node_id,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        epochs=log.epochs,
        producer_state=producer_state,
        rules=settings.rules,
        emit=world.emit,
        high_watermark=home.high_watermark(key),
    )
    replica.is_tiered, replica.local_start_offset = log.is_tiered, log.local_start_offset
    return HostedPartition(topic.topic_id, log, replica, settings, snapshots, home)
