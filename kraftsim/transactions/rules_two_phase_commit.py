"""Transactions that a producer of a two-phase commit finds again after its crash: the part of
KIP-939 that no release has.

A participant prepares: all records of its transaction are acknowledged, and it tells the
application's database the producer id and epoch of the transaction. The database commits them
together with its own changes, or it does not; that is the decision. Then the transaction is
committed, or aborted, here. If the producer crashes in between, its successor sends InitProducerId
with keep_prepared_txn, which does not abort the open transaction: the response has the identity of
the transaction beside the one of the successor, and the database tells what to do with it.

So an entry has two identities while the transaction is open. The records in the partitions have the
former one, `producer_id` and `producer_epoch`, and its markers must have it, too. The producer has
the other one, `next_producer_id` and `next_producer_epoch`: each InitProducerId bumps it, so that
the producer before is fenced. Both are in the record, because the next coordinator needs both.

    InitProducerId             Empty           42/7                   the producer has 42/7
    its first record           Ongoing         42/7
    ... keep_prepared_txn      Ongoing         42/7    next 42/8      42/8; the transaction has 42/7
    ... keep_prepared_txn      Ongoing         42/7    next 42/9      42/9; the transaction has 42/7
    EndTxn of 42/9             PrepareCommit   42/8    next 42/10     markers have 42/8
    all markers are written    CompleteCommit  42/10                  the producer has 42/10

EndTxn bumps the next epoch once more: with 42/9 a late copy of the request would end the
transaction after this one.

What 4.1 to 4.4 have of KIP-939 is in `rules_coordinator` and the handler of InitProducerId: no
time-out, the right TWO_PHASE_COMMIT, and UNSUPPORTED_VERSION for keep_prepared_txn.
Source: KIP-939; the pull requests 19193 (merged) and 21735 (open) of Apache Kafka.
"""

from collections.abc import Collection
from dataclasses import replace

from kraftsim.core.decision import Refusal
from kraftsim.transactions.rules_coordinator import (
    BUSY,
    EPOCH_BUMPING_VERSION,
    FENCED,
    FENCING_EPOCH,
    MUST_ABORT,
    NEEDS_PRODUCER_ID,
    OTHER_PRODUCER,
    Already,
    EndTxnInput,
    Expected,
    MustAbort,
    NeedsProducerId,
    TransactionRulesSince43,
    is_busy,
    is_exhausted,
)
from kraftsim.transactions.rules_state import (
    ENDLESS_MS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TopicPartition,
    TransactionEntry,
    TransactionFacts,
)
from protocol.errors import ErrorCode
from protocol.records.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

ONLY_ENDS = Refusal(
    ErrorCode.INVALID_TXN_STATE, "a transaction that was kept can only be committed or aborted"
)


def is_kept(facts: TransactionFacts) -> bool:
    """Return whether the producer has another identity than its open transaction."""
    return facts.next_producer_epoch != NO_PRODUCER_EPOCH


def producer_of(facts: TransactionFacts) -> Expected:
    """Return the identity that requests of the current producer have."""
    if is_kept(facts):
        return facts.next_producer_id, facts.next_producer_epoch
    return facts.producer_id, facts.producer_epoch


class TransactionRulesOfTwoPhaseCommit(TransactionRulesSince43):
    """The rules of 4.3 and later, with transactions that are kept for the next producer."""

    # InitProducerId
    # ----------------------------------------------------------------------------------------------

    def decide_init(
        self,
        entry: TransactionEntry,
        expected: Expected | None,
        timeout_ms: int,
        now_ms: int,
        fresh_producer_id: int | None = None,
    ) -> TransactionFacts | NeedsProducerId | MustAbort | Refusal:
        """Initialize the id for a producer that does not know of a kept transaction: it is
        aborted.
        """
        if not is_kept(entry.facts) or is_busy(entry):
            return super().decide_init(entry, expected, timeout_ms, now_ms, fresh_producer_id)
        return MUST_ABORT if expected in (None, producer_of(entry.facts)) else FENCED

    def decide_keeping(
        self,
        entry: TransactionEntry,
        expected: Expected | None,
        timeout_ms: int,
        now_ms: int,
        fresh_producer_id: int | None = None,
    ) -> TransactionFacts | NeedsProducerId | MustAbort | Refusal:
        """Give the id to another producer, and keep its open transaction. Without one this is an
        InitProducerId as any other.

        An open transaction without a time-out keeps it: what is prepared must not be aborted
        because the next producer asks for one.
        """
        facts = entry.facts
        if is_busy(entry):
            return BUSY
        if facts.state is not ONGOING:
            return self.decide_init(entry, expected, timeout_ms, now_ms, fresh_producer_id)
        if expected not in (None, producer_of(facts)):
            return FENCED
        given = _next_of(producer_of(facts), fresh_producer_id)
        if isinstance(given, NeedsProducerId):
            return given
        is_endless = facts.timeout_ms == ENDLESS_MS
        return replace(
            facts,
            next_producer_id=given[0],
            next_producer_epoch=given[1],
            timeout_ms=ENDLESS_MS if is_endless else timeout_ms,
            last_update_ms=now_ms,
        )

    # AddPartitionsToTxn, AddOffsetsToTxn
    # ----------------------------------------------------------------------------------------------

    def decide_add(
        self,
        entry: TransactionEntry,
        producer: Expected,
        partitions: Collection[TopicPartition],
        transaction_version: int,
        now_ms: int,
    ) -> TransactionFacts | Already | Refusal:
        """Add partitions; to a kept transaction none: their records would have another identity
        than its markers.
        """
        if is_kept(entry.facts) and not is_busy(entry):
            return self._not_the_producer(entry.facts, producer) or ONLY_ENDS
        return super().decide_add(entry, producer, partitions, transaction_version, now_ms)

    def verify(
        self,
        entry: TransactionEntry,
        producer: Expected,
        partition: TopicPartition,
        *,
        absent: ErrorCode,
    ) -> ErrorCode:
        """Return whether a producer may write to a partition: none may in a kept transaction."""
        if is_kept(entry.facts) and not is_busy(entry):
            return (self._not_the_producer(entry.facts, producer) or ONLY_ENDS).error
        return super().verify(entry, producer, partition, absent=absent)

    def _not_the_producer(self, facts: TransactionFacts, producer: Expected) -> Refusal | None:
        producer_id, epoch = producer_of(facts)
        if producer[0] != producer_id:
            return OTHER_PRODUCER
        return None if producer[1] == epoch else FENCED

    # EndTxn, and forced aborts
    # ----------------------------------------------------------------------------------------------

    def decide_end(
        self,
        entry: TransactionEntry,
        asked: EndTxnInput,
        now_ms: int,
        fresh_producer_id: int | None = None,
    ) -> TransactionFacts | Already | NeedsProducerId | Refusal:
        """Commit or abort; a kept transaction only with a bump of the epoch."""
        facts = entry.facts
        if not is_kept(facts) or is_busy(entry):
            return super().decide_end(entry, asked, now_ms, fresh_producer_id)
        refusal = self._not_the_producer(facts, (asked.producer_id, asked.producer_epoch))
        if refusal is not None:
            return refusal
        if asked.transaction_version < EPOCH_BUMPING_VERSION:
            return ONLY_ENDS
        return _kept_is_ended(facts, now_ms, fresh_producer_id, is_commit=asked.is_commit)

    def decide_forced_abort(
        self,
        entry: TransactionEntry,
        transaction_version: int,
        now_ms: int,
        fresh_producer_id: int | None = None,
    ) -> TransactionFacts | NeedsProducerId | Refusal:
        """Abort a transaction for a producer that does not keep it."""
        if not is_kept(entry.facts):
            return super().decide_forced_abort(
                entry, transaction_version, now_ms, fresh_producer_id
            )
        return _kept_is_ended(entry.facts, now_ms, fresh_producer_id, is_commit=False)

    def identity_after(self, facts: TransactionFacts) -> Expected:
        """Return the identity to continue with after the end of a transaction."""
        return producer_of(facts) if is_kept(facts) else super().identity_after(facts)

    # Completion
    # ----------------------------------------------------------------------------------------------

    def completed(self, entry: TransactionEntry, now_ms: int) -> TransactionFacts:
        """Return the facts to write when all markers are written: the producer's identity is the
        only one again.
        """
        done, facts = super().completed(entry, now_ms), entry.facts
        if not is_kept(facts):
            return done
        producer_id, epoch = producer_of(facts)
        return replace(
            done,
            producer_id=producer_id,
            producer_epoch=epoch,
            previous_producer_id=facts.previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
        )


def _next_of(producer: Expected, fresh_producer_id: int | None) -> Expected | NeedsProducerId:
    """Return the next identity of a producer: the next epoch, or another id after the last one."""
    producer_id, epoch = producer
    if not is_exhausted(epoch):
        return producer_id, epoch + 1
    return NEEDS_PRODUCER_ID if fresh_producer_id is None else (fresh_producer_id, 0)


def _kept_is_ended(
    facts: TransactionFacts, now_ms: int, fresh_producer_id: int | None, *, is_commit: bool
) -> TransactionFacts | NeedsProducerId:
    """Prepare the end of a kept transaction: its markers get the epoch after that of its records,
    and the producer gets its next identity.
    """
    before = producer_of(facts)
    after = _next_of(before, fresh_producer_id)
    if isinstance(after, NeedsProducerId):
        return after
    return replace(
        facts,
        state=PREPARE_COMMIT if is_commit else PREPARE_ABORT,
        producer_epoch=min(facts.producer_epoch + 1, FENCING_EPOCH),
        last_producer_epoch=before[1],
        previous_producer_id=before[0],
        next_producer_id=after[0],
        next_producer_epoch=after[1],
        last_update_ms=now_ms,
        transaction_version=EPOCH_BUMPING_VERSION,
    )
