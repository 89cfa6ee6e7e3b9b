"""Two brokers respond at the same time to WriteTxnMarkers, both responses find no marker missing,
and the transaction completes twice.

By then the producer has begun the next transaction, which the second record marks as complete.

Source: KAFKA-10080, fixed by letting only the thread that removes the transaction complete it
(TransactionMarkerChannelManager.maybeWriteTxnCompletion).
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.transactions.marker_sender import MarkerSender
from kraftsim.transactions.rules_markers import (
    Complete,
    MarkerErrors,
    MarkerQueue,
    PreparedTransaction,
)
from kraftsim.transactions.rules_state import (
    COMPLETED,
    TransactionEntry,
    TransactionFacts,
    TransactionShard,
)

COMPLETIONS = tuple(COMPLETED.values())


class CompletesEachTime(MarkerQueue):
    """Completes a transaction without missing markers each time it is called."""

    def settle(self, ended: PreparedTransaction) -> None:
        """Complete a transaction if no marker is missing."""
        if self.is_current(ended) and not ended.entry.facts.partitions:
            self._effects.append(
                Complete(ended)
            )  # right: only the caller that removes it from `pending` completes it


class ChecksLater(MarkerSender):
    """Yields between the processing of a response and the check for missing markers."""

    async def take(self, broker_id: int, errors: MarkerErrors) -> None:
        """Process a response, and check for missing markers later."""
        touched = self.queue.take_answer(broker_id, errors)
        await self.shell.world.yield_point("markers taken note of, and not looked at")
        self.run(self.queue.settle_all(touched))


class CompletesInAnyState(TransactionEntry):
    """Allows completion in any state."""

    __slots__ = ()

    def begin(self, facts: TransactionFacts) -> None:
        """The record of these facts is about to be appended."""
        if facts.state in COMPLETIONS:
            self.pending = facts.state
        else:
            super().begin(facts)

    def finish(self, facts: TransactionFacts) -> None:
        """The record of these facts is committed."""
        if facts.state in COMPLETIONS:
            self.pending = None
            self.take(facts)
        else:
            super().finish(facts)


class ShardWithSuchEntries(TransactionShard):
    """Has such entries."""

    entry_class = CompletesInAnyState


BUG = Bug(
    name="KAFKA-10080",
    title="two concurrent responses complete a transaction twice",
    fixed_in=("2.6.0", "2.7.0"),
    swap=lambda parts: parts.replacing(
        marker_queue=CompletesEachTime,
        marker_sender=ChecksLater,
        transaction_shard=ShardWithSuchEntries,
    ),
    scenario="coordinator_failover_every_state",
    caught_by=("transaction-transitions-valid", "transactions-atomic", "nodes-believe-the-truth"),
)
