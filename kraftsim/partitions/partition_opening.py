"""Opens the log of a partition that a broker hosts: if it exists, first its batches are recovered,
then its producer state.
"""

from collections.abc import Callable
from typing import Protocol

from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.metadata.rules_image import TopicImage
from kraftsim.metadata.topic_settings import TopicSettings
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.log import PartitionLog
from kraftsim.partitions.log_directory import LogDirectory
from kraftsim.partitions.producer_snapshots import ProducerSnapshots
from kraftsim.partitions.rules_replica import PartitionReplica
from kraftsim.partitions.segment_swap import finish_swaps
from kraftsim.producer_state.rules_entries import ProducerStatePolicy
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.server.config import NodeConfig
from kraftsim.server.events import DiskFailed
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import World
from protocol.records.batches import RecordBatch
from protocol.uuids import uuid_text

# --------------------------------------------------------------------------------------------------
# Opens the log of a partition: first its batches, then its producer state
#
# After a clean shutdown small files contain both; after a crash everything since the last flush is
# read batch by batch. So is everything after a damaged transaction index: read_committed consumers
# would otherwise see aborted records.
#
# Source: LogLoader (load, recoverLog), UnifiedLog.rebuildProducerState.


def recover_partition(
    world: World,
    log: PartitionLog,
    state: ProducerStateManager,
    *,
    recovery_point: int | None,
    log_start_offset: int,
    snapshots_of: type[ProducerSnapshots] = ProducerSnapshots,
    is_tiered: bool = False,
    chained_from: int | None = None,
) -> ProducerSnapshots:
    """Recover a log and its empty producer state; return the producer snapshots of the log.

    `recovery_point`: everything before it is flushed; None after a clean shutdown.
    `log_start_offset`: the known log start offset. `snapshots_of`: the class of the snapshots.
    `is_tiered`: the log may start in remote storage. `chained_from`: from this offset on nothing
    was compacted (`PartitionLog.recover`).
    """
    snapshots = snapshots_of(world, log.directory)
    snapshots.remove_strays(log.found_base_offsets())
    log.is_tiered = is_tiered
    damaged_from = log.remove_damaged_indexes()
    if damaged_from is not None:
        recovery_point = (
            damaged_from if recovery_point is None else min(recovery_point, damaged_from)
        )
    is_upgrade = snapshots.are_from_an_upgrade(was_stopped_cleanly=recovery_point is None)
    if is_upgrade or recovery_point is None:
        log.recover(
            lambda batch: None,
            verify_from_offset=recovery_point,
            on_unclean=lambda base_offset: None,
        )
        log.advance_log_start(min(log_start_offset, log.log_end_offset))
        if is_upgrade:
            snapshots.begin_empty(state, log)
        else:
            snapshots.rebuild(state, log)
        return snapshots
    known = UncleanState(snapshots, log, state, log_start_offset)
    log.recover(
        known.take,
        verify_from_offset=recovery_point,
        on_unclean=known.begin_segment,
        chained_from=chained_from,
    )
    log.advance_log_start(min(log_start_offset, log.log_end_offset))
    snapshots.remove_behind(log.log_end_offset)
    snapshots.take(state, log.log_end_offset)
    return snapshots


class UncleanState:
    """Rebuilds producer state during the recovery of an unclean log: from a snapshot and the
    batches that recovery reads.
    """

    def __init__(
        self,
        snapshots: ProducerSnapshots,
        log: PartitionLog,
        state: ProducerStateManager,
        log_start_offset: int,
    ) -> None:
        self._snapshots = snapshots
        self._log = log
        self._state = state
        self._log_start_offset = log_start_offset
        self._has_begun = False

    def begin_segment(self, base_offset: int) -> None:
        """The batches of this segment come next; those of earlier segments are known to be
        valid.
        """
        if not self._has_begun:
            self._has_begun = True
            log_start_offset = max(self._log_start_offset, self._log.log_start_offset)
            covered = self._snapshots.load(
                self._state, log_start_offset=log_start_offset, log_end_offset=base_offset
            )
            first_offset = self._snapshots.first_to_replay(self._state, self._log, covered)
            self._log.replay(self._state.replay, first_offset=first_offset, end_offset=base_offset)
        self._snapshots.take(self._state, base_offset)

    def take(self, batch: RecordBatch) -> None:
        """Apply a valid batch."""
        if batch.next_offset > self._log_start_offset:
            aborted = self._state.replay(batch)
            if aborted is not None:
                self._log.add_aborted(aborted)


# --------------------------------------------------------------------------------------------------
# Opens the log of a partition that a broker hosts, with recovery if it exists
#
# Source: kafka.log.LogManager.getOrCreateLog, kafka.cluster.Partition.createLogIfNotExists.


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
