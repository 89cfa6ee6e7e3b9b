"""One partition on this broker: its log on disk and the rules of its leader, joined.

Source: kafka.cluster.Partition.
"""

from kraftsim.core.decision import Refusal
from kraftsim.core.partitions.append_decision import AppendDecision
from kraftsim.core.partitions.partition_replica import PartitionReplica
from kraftsim.core.partitions.record_conversion import NothingToAppend, UncheckedRecords
from kraftsim.core.producer_state.verdict import Duplicate
from kraftsim.node.broker.topic_settings import TopicSettings
from kraftsim.node.log import PartitionLog
from protocol.batches import RecordBatch


class LedPartition:
    """A partition that this broker hosts. `replica` says whether it leads it now."""

    __slots__ = ("log", "partition", "replica", "settings", "topic", "topic_id")

    def __init__(self, topic_id: bytes, log: PartitionLog, replica: PartitionReplica, settings: TopicSettings) -> None:
        self.topic = log.topic
        self.partition = log.partition
        self.topic_id = topic_id
        self.log = log
        self.replica = replica
        self.settings = settings

    def append(self, batch: RecordBatch | UncheckedRecords, acks: int, now_ms: int) -> AppendDecision | Duplicate | NothingToAppend | Refusal:
        """Append the batch of a client, or say why not. Raises OSError: then the log is lost and the node must not go on."""
        decision: AppendDecision | Duplicate | NothingToAppend | Refusal
        if isinstance(batch, RecordBatch):
            decision = self.replica.decide_append(batch, acks, now_ms)
        else:
            decision = self.replica.decide_append_of_any_format(batch, acks, now_ms)
        if isinstance(decision, AppendDecision):
            self.log.append(
                decision.chunks(),
                first_offset=decision.first_offset,
                last_offset=decision.last_offset,
                size_bytes=decision.batch.size_bytes,
                max_timestamp=decision.max_timestamp,
                leader_epoch=decision.leader_epoch,
            )
            self.replica.apply_append(decision)
        return decision

    @property
    def owes_flush(self) -> bool:
        """Whether so many records are not durable yet that answers have to wait (log.flush.interval.messages)."""
        return self.log.log_end_offset - self.log.flushed_offset >= self.settings.flush_messages
