"""The events of a replica, which leader and follower share: one method per event."""

from collections.abc import Callable

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    DuplicateAnswered,
    IsrChangeAsked,
    IsrChanged,
    LeaderElected,
    LeaderFollowed,
    LeadershipLost,
    LogStartMoved,
    PartitionHighWatermarkMoved,
    PartitionTruncated,
    ProduceRefused,
    ProducerSnapshotTaken,
    ProducerStateExpired,
)
from kraftsim.partitions.events_transactions import (
    LastStableOffsetMoved,
    MarkerAppended,
    MarkerRefused,
)
from kraftsim.partitions.rules_append import AppendDecision, EndMarker
from kraftsim.partitions.rules_leader import IsrProposal, LeaderState
from kraftsim.producer_state.rules_entries import Duplicate
from kraftsim.tiered_storage.events import LocalLogStartMoved
from protocol.records.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, RecordBatch


class ReplicaEvents:
    """Emits the events of one partition."""

    __slots__ = ("_emit", "partition", "topic")

    def __init__(self, topic: str, partition: int, emit: Callable[[Event], None]) -> None:
        self.topic = topic
        self.partition = partition
        self._emit = emit

    # Roles
    # ----------------------------------------------------------------------------------------------

    def elected(self, leader_epoch: int, log_end_offset: int) -> None:
        """It is leader."""
        self._emit(
            LeaderElected(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=leader_epoch,
                next_offset=log_end_offset,
            )
        )

    def leadership_lost(self, leader_epoch: int) -> None:
        """It is not leader any more."""
        self._emit(
            LeadershipLost(topic=self.topic, partition=self.partition, leader_epoch=leader_epoch)
        )

    def follows(self, leader_id: int, leader_epoch: int, log_end_offset: int) -> None:
        """It is follower."""
        self._emit(
            LeaderFollowed(
                topic=self.topic,
                partition=self.partition,
                leader_id=leader_id,
                leader_epoch=leader_epoch,
                log_end_offset=log_end_offset,
            )
        )

    def isr_proposed(self, proposal: IsrProposal) -> None:
        """It sends AlterPartition."""
        self._emit(
            IsrChangeAsked(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                isr=",".join(str(each) for each in proposal.isr),
            )
        )

    def in_sync(self, leader_state: LeaderState, leader_epoch: int) -> None:
        """Its ISR changed."""
        self._emit(
            IsrChanged(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=leader_epoch,
                partition_epoch=leader_state.in_sync.partition_epoch,
                isr=",".join(str(each) for each in leader_state.in_sync.agreed),
            )
        )

    # The log
    # ----------------------------------------------------------------------------------------------

    def appended(self, decision: AppendDecision) -> None:
        """It appended a batch as leader."""
        batch = decision.batch
        self._emit(
            BatchAppended(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=decision.leader_epoch,
                first_offset=decision.first_offset,
                last_offset=decision.last_offset,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                last_sequence=batch.last_sequence,
                record_count=batch.record_count,
                size_bytes=batch.size_bytes,
                crc=decision.crc,
                is_transactional=batch.is_transactional,
            )
        )

    def replicated(self, batch: RecordBatch) -> None:
        """It appended a batch as follower."""
        self._emit(
            BatchReplicated(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=batch.partition_leader_epoch,
                first_offset=batch.base_offset,
                last_offset=batch.last_offset,
                crc=batch.crc,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                is_transactional=batch.is_transactional,
            )
        )

    def truncated(
        self, leader_epoch: int, former_end_offset: int, log_end_offset: int, high_watermark: int
    ) -> None:
        """Its log was truncated."""
        self._emit(
            PartitionTruncated(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=leader_epoch,
                former_end_offset=former_end_offset,
                log_end_offset=log_end_offset,
                high_watermark=high_watermark,
            )
        )

    def local_start_moved(self, local_start_offset: int, log_start_offset: int) -> None:
        """Local segments that are in remote storage were deleted."""
        self._emit(
            LocalLogStartMoved(
                topic=self.topic,
                partition=self.partition,
                local_start_offset=local_start_offset,
                log_start_offset=log_start_offset,
            )
        )

    def log_start_moved(self, log_start_offset: int, reason: str) -> None:
        """Its log start offset advanced."""
        self._emit(
            LogStartMoved(
                topic=self.topic,
                partition=self.partition,
                log_start_offset=log_start_offset,
                reason=reason,
            )
        )

    def high_watermark(self, leader_epoch: int, high_watermark: int, *, is_leader: bool) -> None:
        """Its high watermark moved."""
        self._emit(
            PartitionHighWatermarkMoved(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=leader_epoch,
                high_watermark=high_watermark,
                is_leader=is_leader,
            )
        )

    # Producers
    # ----------------------------------------------------------------------------------------------

    def refused(self, batch: RecordBatch | None, refusal: Refusal) -> None:
        """It refused a batch; None for bytes without a valid batch."""
        self._emit(
            ProduceRefused(
                topic=self.topic,
                partition=self.partition,
                error_code=refusal.error,
                reason=refusal.why,
                producer_id=NO_PRODUCER_ID if batch is None else batch.producer_id,
                producer_epoch=NO_PRODUCER_EPOCH if batch is None else batch.producer_epoch,
                base_sequence=NO_SEQUENCE if batch is None else batch.base_sequence,
            )
        )

    def duplicate(self, batch: RecordBatch, duplicate: Duplicate) -> None:
        """It detected a duplicate batch."""
        self._emit(
            DuplicateAnswered(
                topic=self.topic,
                partition=self.partition,
                first_offset=duplicate.first_offset,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                last_sequence=batch.last_sequence,
            )
        )

    def expired(self, producer_id: int) -> None:
        """A producer expired."""
        self._emit(
            ProducerStateExpired(
                topic=self.topic, partition=self.partition, producer_id=producer_id
            )
        )

    def snapshot(self, next_offset: int, last_offset: int) -> None:
        """It wrote a producer state snapshot."""
        self._emit(
            ProducerSnapshotTaken(
                topic=self.topic,
                partition=self.partition,
                next_offset=next_offset,
                last_offset=last_offset,
            )
        )

    # Transactions
    # ----------------------------------------------------------------------------------------------

    def ended(self, marker: EndMarker, offset: int, *, on_leader: bool) -> None:
        """A marker is in its log."""
        self._emit(
            MarkerAppended(
                topic=self.topic,
                partition=self.partition,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                is_commit=marker.is_commit,
                offset=offset,
                on_leader=on_leader,
            )
        )

    def refused_marker(self, marker: EndMarker, refusal: Refusal) -> None:
        """It refused a marker."""
        self._emit(
            MarkerRefused(
                topic=self.topic,
                partition=self.partition,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                is_commit=marker.is_commit,
                error_code=refusal.error,
                reason=refusal.why,
            )
        )

    def stable(self, leader_epoch: int, offset: int, high_watermark: int) -> None:
        """Its last stable offset moved, or a transaction limits it from now on."""
        self._emit(
            LastStableOffsetMoved(
                topic=self.topic,
                partition=self.partition,
                leader_epoch=leader_epoch,
                offset=offset,
                high_watermark=high_watermark,
            )
        )
