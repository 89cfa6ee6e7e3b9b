"""A timed-out transaction is aborted with the current epoch of its producer, which is not fenced
and continues.

Its next writes start another transaction; the commit succeeds, and the application assumes that
everything was committed.

Source: KAFKA-6119, fixed by raising the epoch with the abort
(TransactionCoordinator.abortTimedOutTransactions, PrepareEpochFence).
"""

from kraftsim.core.decision import Refusal
from kraftsim.lab.bugs.bug import Bug
from kraftsim.transactions.rules_coordinator import (
    EPOCH_BUMPING_VERSION,
    NeedsProducerId,
    TransactionRules,
)
from kraftsim.transactions.rules_state import TransactionEntry, TransactionFacts


class AbortsWithoutFence(TransactionRules):
    """Keeps the epoch."""

    def decide_forced_abort(
        self,
        entry: TransactionEntry,
        transaction_version: int,
        now_ms: int,
        fresh_producer_id: int | None = None,
    ) -> TransactionFacts | NeedsProducerId | Refusal:
        """Abort without fencing the producer."""
        if transaction_version >= EPOCH_BUMPING_VERSION:
            return super().decide_forced_abort(
                entry, transaction_version, now_ms, fresh_producer_id
            )
        return self._decided(
            entry.facts, is_commit=False, now_ms=now_ms
        )  # right: the epoch is raised before


BUG = Bug(
    name="KAFKA-6119",
    title="a producer whose transaction timed out is not fenced",
    fixed_in=("0.11.0.2", "1.0.0", "1.1.0"),
    swap=lambda parts: parts.replacing(transaction_rules=AbortsWithoutFence),
    scenario="transaction_timeout",
    caught_by=("transactions-atomic", "each-input-processed-once"),
)
