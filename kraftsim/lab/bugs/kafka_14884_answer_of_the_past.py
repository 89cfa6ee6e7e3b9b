"""A partition sends a verification to the coordinator, and appends on the response although a
marker was written in between.

The response is outdated: the records start a transaction that never ends.

Source: KAFKA-14884, fixed by a guard that each marker invalidates (VerificationGuard).
"""

from kraftsim.core.decision import Refusal
from kraftsim.lab.bugs.bug import Bug
from kraftsim.producer_state.rules_manager import ProducerStateManager
from protocol.records.batches import RecordBatch


class AcceptsOutdatedVerification(ProducerStateManager):
    """Does not compare guards."""

    def _refuse_unverified(self, batch: RecordBatch, guard: int | None) -> Refusal | None:
        """Reject nothing; right: the guard must be the one that was created with the verification
        request.
        """
        return None


BUG = Bug(
    name="KAFKA-14884",
    title="an outdated verification lets records start another transaction",
    fixed_in=("3.5.0", "3.6.0"),
    swap=lambda parts: parts.replacing(producer_state_manager=AcceptsOutdatedVerification),
    scenario="transaction_timeout",
    caught_by=(
        "fenced-producers-write-nothing",
        "no-hanging-transactions",
        "recovers-after-heal",
        "markers-match-coordinator-decisions",
        "transactions-atomic",
    ),
)
