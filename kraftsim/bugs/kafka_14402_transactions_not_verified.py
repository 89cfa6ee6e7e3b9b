"""A partition writes the first records of a transaction without asking the coordinator whether there is one.

Records that were on their way when their transaction was aborted come after the marker, and begin a transaction that nobody will end; or the next one
of the same producer takes them along.

Source: KAFKA-14402, fixed by verification (KIP-890 part 1, ReplicaManager.maybeSendPartitionsToTransactionCoordinator).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.decision import Refusal
from kraftsim.core.producer_state.manager import ProducerStateManager
from protocol.batches import RecordBatch


class AsksNobody(ProducerStateManager):
    """Believes every producer."""

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int, *, adds: bool = False
    ) -> int | Refusal | None:
        """Say that nobody need be asked."""
        return super().begin_verification(producer_id, producer_epoch, base_sequence, now_ms, adds=adds) if adds else None

    def _refuse_unverified(self, batch: RecordBatch, guard: int | None) -> Refusal | None:
        """Refuse nothing; right: what was not asked about is not written."""
        return None


BUG = Bug(
    name="KAFKA-14402",
    title="transactions begin in partitions that no coordinator knows of",
    fixed_in=("3.6.0",),
    swap=lambda parts: parts.replacing(producer_state_manager=AsksNobody),
    story="transaction_times_out",
    caught_by=(
        "fenced-producers-write-nothing",
        "no-transaction-hangs",
        "settles-after-heal",
        "markers-agree-with-coordinators",
        "transactions-atomic",
    ),
)
