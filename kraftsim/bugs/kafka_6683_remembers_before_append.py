"""The producer state moves when a batch is judged, before the batch is in the log.

A segment is rolled for the batch, and the snapshot of the producers taken there already knows it. Whoever loads it without having the batch takes
its repetition for one: it is acknowledged and lost. A crash does not lead there, for what was not flushed is read again. A cut of the log does: of a
leader that rolled a segment for a batch, was deposed before anybody had copied it, cut its log where the segment begins, and led again.

Source: KAFKA-6683, fixed by copying the producer's entry for an append (kafka.log.ProducerAppendInfo).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.decision import Refusal
from kraftsim.core.partitions.append_decision import AppendDecision
from kraftsim.core.partitions.partition_replica import PartitionReplica
from kraftsim.core.producer_state.verdict import Duplicate
from protocol.batches import RecordBatch


class RemembersAtOnce(PartitionReplica):
    """Changes the state in the decision, not after the write."""

    __slots__ = ()

    def _decide_place(self, batch: RecordBatch, now_ms: int, guard: int | None = None) -> AppendDecision | Duplicate | Refusal:
        decision = super()._decide_place(batch, now_ms, guard)
        if isinstance(decision, AppendDecision):
            super()._remember(decision)
        return decision

    def _remember(self, decision: AppendDecision) -> None:
        """Right: only now."""


BUG = Bug(
    name="KAFKA-6683",
    title="a batch is remembered before it is in the log",
    fixed_in=("1.0.2", "1.1.0", "2.0.0"),
    swap=lambda parts: parts.replacing(partition_replica=RemembersAtOnce),
    story="old_leader_cuts_and_leads_again",
    caught_by=("producer-snapshot-of-appended-only", "acknowledged-records-in-final-log", "acknowledged-records-on-replicas"),
)
