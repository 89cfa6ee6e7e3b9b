"""A partition asks the coordinator, and writes when the answer is there, though a marker has been written meanwhile.

What was true when it was asked is true no longer: the records begin a transaction that nobody will end.

Source: KAFKA-14884, fixed by a guard that each marker takes away (VerificationGuard).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.decision import Refusal
from kraftsim.core.producer_state.manager import ProducerStateManager
from protocol.batches import RecordBatch


class BelievesOldAnswers(ProducerStateManager):
    """Does not compare guards."""

    def _refuse_unverified(self, batch: RecordBatch, guard: int | None) -> Refusal | None:
        """Refuse nothing; right: the guard must be the one that the question was asked with."""
        return None


BUG = Bug(
    name="KAFKA-14884",
    title="an answer about a transaction that is over begins another",
    fixed_in=("3.5.0", "3.6.0"),
    swap=lambda parts: parts.replacing(producer_state_manager=BelievesOldAnswers),
    story="transaction_times_out",
    caught_by=(
        "fenced-producers-write-nothing",
        "no-transaction-hangs",
        "settles-after-heal",
        "markers-agree-with-coordinators",
        "transactions-atomic",
    ),
)
