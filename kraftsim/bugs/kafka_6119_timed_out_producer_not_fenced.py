"""A transaction that took too long is aborted under the epoch of its producer, which goes on as if nothing had happened.

What it writes next begins another transaction; the commit succeeds, and the application believes that everything was committed.

Source: KAFKA-6119, fixed by raising the epoch with the abort (TransactionCoordinator.abortTimedOutTransactions, PrepareEpochFence).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.decision import Refusal
from kraftsim.core.transactions.transaction_entry import TransactionEntry, TransactionFacts
from kraftsim.core.transactions.transaction_rules import EPOCH_BUMPING_VERSION, NeedsProducerId, TransactionRules


class AbortsWithoutFence(TransactionRules):
    """Leaves the epoch as it is."""

    def decide_forced_abort(
        self, entry: TransactionEntry, transaction_version: int, now_ms: int, fresh_producer_id: int | None = None
    ) -> TransactionFacts | NeedsProducerId | Refusal:
        """Abort over the producer's head, and do not tell it."""
        if transaction_version >= EPOCH_BUMPING_VERSION:
            return super().decide_forced_abort(entry, transaction_version, now_ms, fresh_producer_id)
        return self._decided(entry.facts, is_commit=False, now_ms=now_ms)  # right: the epoch is raised before


BUG = Bug(
    name="KAFKA-6119",
    title="a producer whose transaction timed out is not fenced",
    fixed_in=("0.11.0.2", "1.0.0", "1.1.0"),
    swap=lambda parts: parts.replacing(transaction_rules=AbortsWithoutFence),
    story="transaction_times_out",
    caught_by=("transactions-atomic", "every-input-copied-once"),
)
