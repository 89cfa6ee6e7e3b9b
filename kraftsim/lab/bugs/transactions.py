"""Bugs of transactions: of the coordinator, of the markers that it sends, and of the partitions and
producers that take part.

What can go wrong is a response, a request or a marker of one transaction that acts on another one
of the same producer. Epochs tell them apart, if each attempt to fence raises the epoch once, if
a coordinator compares the very transaction that it sent markers for, if a partition asks the
coordinator before it lets records start a transaction, and if EndTxn names the transaction.
"""

from dataclasses import replace

from kraftsim.clients.rules_transaction_steps import TransactionalSettings
from kraftsim.clients.rules_transactional_producer import TransactionalProducer
from kraftsim.core.decision import Refusal
from kraftsim.lab.bugs.bug import Bug
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.transactions.marker_sender import MarkerSender
from kraftsim.transactions.rules_coordinator import (
    EPOCH_BUMPING_VERSION,
    FENCING_EPOCH,
    NO_EPOCH_LEFT,
    NeedsProducerId,
    TransactionRules,
    TransactionRulesSince40,
)
from kraftsim.transactions.rules_markers import (
    Complete,
    MarkerEffect,
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
from kraftsim.world.interface import YieldPoint
from protocol.records.batches import RecordBatch

KAFKA_6119 = Bug(
    name="KAFKA-6119",
    title="a producer whose transaction timed out is not fenced",
    about="""A timed-out transaction is aborted with the current epoch of its producer, which is
        not fenced and continues.

        Its next writes start another transaction; the commit succeeds, and the application assumes
        that everything was committed.

        Source: KAFKA-6119, fixed by raising the epoch with the abort
        (TransactionCoordinator.abortTimedOutTransactions, PrepareEpochFence).
        """,
    fixed_in=("0.11.0.2", "1.0.0", "1.1.0"),
    swap=lambda parts: parts.replacing(transaction_rules=AbortsWithoutFence),
    scenario="transaction_timeout",
    caught_by=("transactions-atomic", "each-input-processed-once"),
)


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


KAFKA_9666 = Bug(
    name="KAFKA-9666",
    title="every failed attempt to fence a producer costs an epoch",
    about="""Each attempt to fence a producer raises its epoch, even if the record of the
        previous attempt could not be written.

        `__transaction_state` has fewer in-sync replicas than required for a while; every
        InitProducerId with an open transaction raises the epoch in memory once more, until the
        epochs are exhausted.

        Source: KAFKA-9666, fixed by recording the failed attempt
        (TransactionMetadata.hasFailedEpochFence).
        """,
    fixed_in=("2.6.0", "2.7.0"),
    swap=lambda parts: parts.replacing(transaction_rules=IgnoresFailedFences),
    scenario="zombie_fenced_by_epoch",
    caught_by=("transaction-transitions-valid",),
)


class IgnoresFailedFences(TransactionRules):
    """Raises the epoch again."""

    def on_forced_abort_failed(self, entry: TransactionEntry) -> None:
        """Right: record that the epoch was raised."""


KAFKA_10080 = Bug(
    name="KAFKA-10080",
    title="two concurrent responses complete a transaction twice",
    about="""Two brokers respond at the same time to WriteTxnMarkers, both responses find no
        marker missing, and the transaction completes twice.

        By then the producer has begun the next transaction, which the second record marks as
        complete.

        Source: KAFKA-10080, fixed by letting only the thread that removes the transaction complete
        it (TransactionMarkerChannelManager.maybeWriteTxnCompletion).
        """,
    fixed_in=("2.6.0", "2.7.0"),
    swap=lambda parts: parts.replacing(
        marker_queue=CompletesEachTime,
        marker_sender=ChecksLater,
        transaction_shard=ShardWithSuchEntries,
    ),
    scenario="coordinator_failover_every_state",
    caught_by=("transaction-transitions-valid", "transactions-atomic", "nodes-believe-the-truth"),
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
        await self.shell.world.yield_point(YieldPoint.MARKERS_COUNTED)
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


KAFKA_16352 = Bug(
    name="KAFKA-16352",
    title="an outdated response removes the markers of a newer coordinator epoch",
    about="""A coordinator that completes a transaction removes every pending entry of its
        transactional id from the queue, including a newer one.

        The partition of `__transaction_state` moved away and back; the transaction was loaded and
        its markers are sent again. Then the response to an earlier request arrives, with any error
        code, or its connection closes: it is of another coordinator epoch, and so the markers of
        the id are removed. The completion of the transaction is never written.

        Source: KAFKA-16352, fixed by removing the very entry
        (TransactionMarkerChannelManager.removeMarkersForTxn).
        """,
    fixed_in=("3.8.0",),
    swap=lambda parts: parts.replacing(marker_queue=ClearsByName),
    scenario="coordinator_failover_every_state",
    caught_by=("no-hanging-transactions", "recovers-after-heal"),
)


class ClearsByName(MarkerQueue):
    """Identifies transactions by their id alone, and processes outdated responses."""

    def cancel(self, ended: PreparedTransaction) -> None:
        """Send no further markers."""
        self.pending.pop(ended.transactional_id, None)  # right: only if it is this very one

    def take_answer(self, broker_id: int, errors: MarkerErrors) -> list[PreparedTransaction]:
        """Process the response of a broker; an outdated transaction is processed like the current
        one.
        """
        self._clear_old(broker_id)
        return super().take_answer(broker_id, errors)

    def on_lost(self, broker_id: int) -> list[MarkerEffect]:
        """A broker will not respond; this removes outdated transactions, too."""
        self._clear_old(broker_id)
        return super().on_lost(broker_id)

    def _clear_old(self, broker_id: int) -> None:
        for marker in self._in_flight.get(broker_id, ()):
            if not self.is_current(marker.ended):
                self.cancel(marker.ended)


KAFKA_14402 = Bug(
    name="KAFKA-14402",
    title="partitions accept transactional batches that no coordinator has verified",
    about="""A partition appends the first records of a transaction without asking the
        coordinator whether the transaction exists.

        Records that were in flight when their transaction was aborted arrive after the marker, and
        start a transaction that never ends; or the next transaction of the same producer includes
        them.

        Source: KAFKA-14402, fixed by verification (KIP-890 part 1,
        ReplicaManager.maybeSendPartitionsToTransactionCoordinator).
        """,
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


KAFKA_14884 = Bug(
    name="KAFKA-14884",
    title="an outdated verification lets records start another transaction",
    about="""A partition sends a verification to the coordinator, and appends on the response
        although a marker was written in between.

        The response is outdated: the records start a transaction that never ends.

        Source: KAFKA-14884, fixed by a guard that each marker invalidates (VerificationGuard).
        """,
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


class AcceptsOutdatedVerification(ProducerStateManager):
    """Does not compare guards."""

    def _refuse_unverified(self, batch: RecordBatch, guard: int | None) -> Refusal | None:
        """Reject nothing; right: the guard must be the one that was created with the verification
        request.
        """
        return None


KAFKA_17754 = Bug(
    name="KAFKA-17754",
    title="a delayed EndTxn ends the next transaction",
    about="""EndTxn does not identify the transaction: a delayed one ends the next transaction
        of its producer.

        A client times out waiting for its commit, commits again, and begins the next transaction.
        Then the first request arrives, and commits half of it. This happens with
        transaction.version 0 and 1, and with clients that support no higher version; with version 2
        every EndTxn raises the epoch, and the delayed request is rejected.

        Source: KAFKA-17754, fixed by KIP-890 part 2; Jepsen's report on Bufstream 0.1.0.
        """,
    fixed_in=("4.0.0, with transaction.version 2",),
    swap=lambda parts: parts.replacing(transactional_producer=EndsWithoutEpoch),
    scenario="delayed_end_txn",
    caught_by=(
        "only-retriable-errors",
        "transactions-atomic",
        "each-input-processed-once",
        "read-committed-isolation",
    ),
)


class EndsWithoutEpoch(TransactionalProducer):
    """A pre-4.0 client: it does not use transaction.version 2, whatever the cluster supports."""

    def __init__(self, settings: TransactionalSettings) -> None:
        super().__init__(
            replace(settings, uses_implicit_adding=False)
        )  # right: with version 2 each transaction has an epoch of its own


KAFKA_19367 = Bug(
    name="KAFKA-19367",
    title="an abort for another producer, or on timeout, costs two epochs",
    about="""With transaction.version 2 a forced abort bumps the epoch to fence the producer, and
        once more as every end of a transaction does.

        In the last epoch of a producer id the second bump fails, and so does every later attempt:
        the transaction stays open, InitProducerId returns UNKNOWN_SERVER_ERROR, and read_committed
        consumers wait for ever.

        Source: KAFKA-19367; affects Apache Kafka 4.0.0, fixed by one bump
        (TransactionCoordinator.endTransaction).
        """,
    fixed_in=("4.0.1", "4.1.0"),
    swap=lambda parts: parts.replacing(transaction_rules=BumpsTwice),
    scenario="exhausted_producer_epochs",
    caught_by=("only-retriable-errors", "recovers-after-heal", "no-hanging-transactions"),
)


class BumpsTwice(TransactionRulesSince40):
    """Bumps the epoch before the abort bumps it."""

    def decide_forced_abort(
        self,
        entry: TransactionEntry,
        transaction_version: int,
        now_ms: int,
        fresh_producer_id: int | None = None,
    ) -> TransactionFacts | NeedsProducerId | Refusal:
        """Abort a transaction, and fence its producer before."""
        if transaction_version >= EPOCH_BUMPING_VERSION:
            if entry.facts.producer_epoch >= FENCING_EPOCH:
                return NO_EPOCH_LEFT
            entry.take(replace(entry.facts, producer_epoch=self.fence(entry)))  # right: not twice
        return super().decide_forced_abort(entry, transaction_version, now_ms, fresh_producer_id)


KAFKA_19690 = Bug(
    name="KAFKA-19690",
    title="a producer whose transaction timed out gets INVALID_TXN_STATE",
    about="""A partition checks whether the verification of a batch is current before it checks the
        epoch.

        A transaction times out while its first batch waits for the verification. The producer gets
        INVALID_TXN_STATE, as if the application had made a mistake: Kafka Streams stops. With
        INVALID_PRODUCER_EPOCH it aborts and continues.

        Source: KAFKA-19690; affects Apache Kafka up to 3.9, 4.0.0, 4.0.1 and 4.1.0, fixed by
        checking the epoch first (UnifiedLog.analyzeAndValidateProducerState).
        """,
    fixed_in=("4.0.2", "4.1.1"),
    swap=lambda parts: parts.replacing(producer_state_manager=ChecksVerificationFirst),
    scenario="transaction_timeout_during_verification",
    caught_by=("timed-out-producers-fenced-by-epoch",),
)


class ChecksVerificationFirst(ProducerStateManager):
    """Reports an outdated verification whatever the epoch is."""

    def _refuse_timed_out(self, batch: RecordBatch) -> Refusal | None:
        """Report nothing; right: a past epoch."""
        return None


BUGS = (
    KAFKA_6119,
    KAFKA_9666,
    KAFKA_10080,
    KAFKA_16352,
    KAFKA_14402,
    KAFKA_14884,
    KAFKA_17754,
    KAFKA_19367,
    KAFKA_19690,
)
