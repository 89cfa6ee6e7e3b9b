"""A partition appends the first records of a transaction without asking the coordinator whether the
transaction exists.

Records that were in flight when their transaction was aborted arrive after the marker, and start a
transaction that never ends; or the next transaction of the same producer includes them.

Source: KAFKA-14402, fixed by verification (KIP-890 part 1,
ReplicaManager.maybeSendPartitionsToTransactionCoordinator).
"""

from kraftsim.core.decision import Refusal
from kraftsim.lab.bugs.bug import Bug
from kraftsim.producer_state.rules_manager import ProducerStateManager
from protocol.records.batches import RecordBatch


class SkipsVerification(ProducerStateManager):
    """Accepts every producer without verification."""

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        now_ms: int,
        *,
        adds: bool = False,
    ) -> int | Refusal | None:
        """Return that no verification is needed."""
        return (
            super().begin_verification(
                producer_id, producer_epoch, base_sequence, now_ms, adds=adds
            )
            if adds
            else None
        )

    def _refuse_unverified(self, batch: RecordBatch, guard: int | None) -> Refusal | None:
        """Reject nothing; right: an unverified batch is not appended."""
        return None


BUG = Bug(
    name="KAFKA-14402",
    title="partitions accept transactional batches that no coordinator has verified",
    fixed_in=("3.6.0",),
    swap=lambda parts: parts.replacing(producer_state_manager=SkipsVerification),
    scenario="transaction_timeout",
    caught_by=(
        "fenced-producers-write-nothing",
        "no-hanging-transactions",
        "recovers-after-heal",
        "markers-match-coordinator-decisions",
        "transactions-atomic",
    ),
)
