"""The producer state is updated when a batch is validated, before the batch is in the log.

A segment is rolled for the batch, and the producer snapshot taken at that point already contains
it. A replica that loads it without having the batch treats a retry as a duplicate: it is
acknowledged and lost. A crash does not cause this, because recovery reads again what was not
flushed. Truncation does: a leader rolls a segment for a batch, loses leadership before a follower
has fetched it, truncates its log to the start of the segment, and becomes leader again.

Source: KAFKA-6683, fixed by copying the producer's entry for an append
(kafka.log.ProducerAppendInfo).
"""

from kraftsim.core.decision import Refusal
from kraftsim.lab.bugs.bug import Bug
from kraftsim.partitions.rules_append import AppendDecision
from kraftsim.partitions.rules_replica import PartitionReplica
from kraftsim.producer_state.rules_entries import Duplicate


class UpdatesStateAtOnce(PartitionReplica):
    """Updates the state in the decision, not after the write."""

    __slots__ = ()

    def _unless_duplicate(
        self, decision: AppendDecision, guard: int | None = None
    ) -> AppendDecision | Duplicate | Refusal:
        outcome = super()._unless_duplicate(decision, guard)
        if isinstance(outcome, AppendDecision):
            super()._remember(outcome)
        return outcome

    def _remember(self, decision: AppendDecision) -> None:
        """Right: only now."""


BUG = Bug(
    name="KAFKA-6683",
    title="producer state contains a batch before it is in the log",
    fixed_in=("1.0.2", "1.1.0", "2.0.0"),
    swap=lambda parts: parts.replacing(partition_replica=UpdatesStateAtOnce),
    scenario="truncated_leader_reelected",
    caught_by=(
        "producer-snapshot-below-its-offset",
        "acknowledged-records-in-final-log",
        "acknowledged-records-on-replicas",
    ),
)
