"""Two brokers answer at once that they have written their markers, both find that none is missing, and the transaction is completed twice.

The producer has begun the next transaction by then: the second record says that it is over.

Source: KAFKA-10080, fixed by letting whoever takes the transaction out complete it (TransactionMarkerChannelManager.maybeWriteTxnCompletion).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.transactions.marker_queue import Complete, EndedTransaction, MarkerErrors, MarkerQueue
from kraftsim.core.transactions.transaction_entry import TransactionEntry, TransactionFacts
from kraftsim.core.transactions.transaction_shard import TransactionShard
from kraftsim.core.transactions.transaction_state import COMPLETED
from kraftsim.node.broker.transactions.marker_sender import MarkerSender

COMPLETIONS = tuple(COMPLETED.values())


class LooksAtWhatIsMissing(MarkerQueue):
    """Completes what has no marker missing, as often as it is asked."""

    def settle(self, ended: EndedTransaction) -> None:
        """Let a transaction be completed if no marker is missing."""
        if self.is_current(ended) and not ended.entry.facts.partitions:
            self._effects.append(Complete(ended))  # right: who takes it out of `pending` completes it


class LooksLater(MarkerSender):
    """Leaves a gap between taking note of an answer and looking at what is missing."""

    async def take(self, broker_id: int, errors: MarkerErrors) -> None:
        """Take an answer, and look a moment later."""
        touched = self.queue.take_answer(broker_id, errors)
        await self.shell.world.breathe("markers taken note of, and not looked at")
        for ended in touched:
            self.queue.settle(ended)
        self.settle()


class LetsItHappen(TransactionEntry):
    """Believes that it may be completed in any state."""

    __slots__ = ()

    def begin(self, facts: TransactionFacts) -> None:
        """These facts are about to be written."""
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


class ShardOfSuch(TransactionShard):
    """Keeps such entries."""

    entry_class = LetsItHappen


BUG = Bug(
    name="KAFKA-10080",
    title="two answers complete a transaction twice",
    fixed_in=("2.6.0", "2.7.0"),
    swap=lambda parts: parts.replacing(marker_queue=LooksAtWhatIsMissing, marker_sender=LooksLater, transaction_shard=ShardOfSuch),
    story="coordinator_failover_in_every_state",
    caught_by=("transaction-states-follow", "transactions-atomic", "nodes-believe-the-truth"),
)
