"""The decisions of a transaction coordinator about one transactional id: InitProducerId,
AddPartitionsToTxn, EndTxn, forced aborts, completion.

A decision reads an entry (`rules_state.TransactionEntry`) and returns the facts to write next, or a
refusal; it changes nothing, with one exception that Kafka has, too: an epoch bumped to fence a
producer is used at once, before its record is written. `TransactionRules` is that of releases
before 4.0, its subclasses are those of 4.0, 4.1 and 4.3; a historical bug replaces single
methods.
Source: KIP-98, KIP-360, KIP-588, KIP-890; TransactionCoordinator, TransactionMetadata; error codes
compared with Apache Kafka 3.9.1 and 4.4.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.transactions.rules_state import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETED,
    EMPTY,
    NO_TIME,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TopicPartition,
    TransactionEntry,
    TransactionFacts,
    TransactionState,
)
from protocol.errors import ErrorCode
from protocol.records.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

# --------------------------------------------------------------------------------------------------
# Producer epochs: exhaustion, and which epoch an EndTxn may have
#
# The last epoch, 32767, is reserved for the coordinator and is never returned to a producer, so
# that the producer with 32766 can still be fenced.
# Source: TransactionMetadata.isEpochExhausted, TransactionCoordinator.endTransaction.

LAST_GIVEN_EPOCH: Final = 32766
"""The last epoch of a producer: afterwards it gets another producer id."""
FENCING_EPOCH: Final = 32767


def is_exhausted(producer_epoch: int) -> bool:
    """Return whether the epochs of a producer id are exhausted."""
    return producer_epoch >= LAST_GIVEN_EPOCH


def is_known_producer(entry: TransactionEntry, producer_id: int, producer_epoch: int) -> bool:
    """Return whether the id and epoch in a request may be the producer's.

    Either none was given yet; or the id is the current one; or the previous, exhausted one: the
    response with the new one may be lost.
    """
    facts = entry.facts
    if facts.producer_epoch == NO_PRODUCER_EPOCH or producer_id == facts.producer_id:
        return True
    return producer_id == facts.previous_producer_id and is_exhausted(producer_epoch)


def is_repeated_end(entry: TransactionEntry, producer_id: int, producer_epoch: int) -> bool:
    """Return whether an EndTxn that bumps the epoch is a retry of a completed one: its epoch is one
    behind, or it exhausted its id.
    """
    facts = entry.facts
    if facts.producer_epoch == producer_epoch + 1:
        return True
    return is_repeated_overflow(entry, producer_id, producer_epoch)


def is_repeated_overflow(entry: TransactionEntry, producer_id: int, producer_epoch: int) -> bool:
    """Return whether an EndTxn used the last epoch of its id, and was answered with another id."""
    facts = entry.facts
    return (
        facts.previous_producer_id == producer_id
        and producer_epoch == LAST_GIVEN_EPOCH
        and facts.producer_epoch == 0
    )


def may_end_with_bump(entry: TransactionEntry, producer_id: int, producer_epoch: int) -> bool:
    """Return whether the epoch of a transaction.version 2 EndTxn is valid for ending the
    transaction, or for a retry.
    """
    facts = entry.facts
    if facts.state in (TransactionState.ONGOING, TransactionState.EMPTY):
        return producer_epoch == facts.producer_epoch
    return producer_epoch == facts.producer_epoch or is_repeated_end(
        entry, producer_id, producer_epoch
    )


EPOCH_BUMPING_VERSION: Final = 2
"""The transaction.version since which every EndTxn bumps the epoch (KIP-890)."""


# --------------------------------------------------------------------------------------------------
# The decisions, and their results besides `TransactionFacts`


@dataclass(frozen=True, slots=True)
class NeedsProducerId:
    """Retry with a new producer id."""


@dataclass(frozen=True, slots=True)
class MustAbort:
    """The ongoing transaction of the former producer must be aborted first."""


@dataclass(frozen=True, slots=True)
class Already:
    """The requested state is already reached; nothing is to be written."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnInput:
    """An EndTxn. `transaction_version` is 2 if the client expects an epoch bump."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int


NEEDS_PRODUCER_ID: Final = NeedsProducerId()
MUST_ABORT: Final = MustAbort()
BUSY: Final = Refusal(
    ErrorCode.CONCURRENT_TRANSACTIONS, "the previous transaction is not completed yet"
)
FENCED: Final = Refusal(ErrorCode.PRODUCER_FENCED, "fenced by another producer")
NO_EPOCH_LEFT: Final = Refusal(
    ErrorCode.UNKNOWN_SERVER_ERROR, "the epochs of the producer id are exhausted"
)
KEEPS_NOTHING: Final = Refusal(
    ErrorCode.UNSUPPORTED_VERSION, "transactions are not kept for another producer"
)
OTHER_PRODUCER: Final = Refusal(
    ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional id belongs to another producer id"
)
Expected = tuple[int, int]
"""The producer id and epoch in a request (KIP-360)."""


class TransactionRules:
    """Decisions for one transactional id.

    `fresh_producer_id` is set when a decision returned NeedsProducerId before.
    """

    aborts_at_reserved_epoch = False
    """Whether a transaction with the reserved epoch, which cannot be fenced any more, is still
    aborted.
    """

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
        """Initialize the id for a producer: with a bumped epoch, or with another producer id if the
        epochs are exhausted.

        Fails with CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, or UNKNOWN_SERVER_ERROR on a retry for
        the last epoch (as in 3.9.1 and 4.4.0).
        """
        facts = entry.facts
        if is_busy(entry):
            return BUSY
        if expected is not None and not is_known_producer(entry, *expected):
            return FENCED
        if facts.state is ONGOING:
            return MUST_ABORT
        assert facts.state in AT_REST, (
            f"{entry.transactional_id} is {facts.state.label} and nothing is pending"
        )
        if is_exhausted(facts.producer_epoch) and (
            expected is None or expected[1] == facts.producer_epoch
        ):
            if fresh_producer_id is None:
                return NEEDS_PRODUCER_ID
            last_epoch = NO_PRODUCER_EPOCH if expected is None else facts.producer_epoch
            return self._initialised(facts, (fresh_producer_id, 0), last_epoch, timeout_ms, now_ms)
        if is_exhausted(facts.producer_epoch):
            return NO_EPOCH_LEFT
        return self._next_epoch(facts, expected, timeout_ms, now_ms)

    def decide_keeping(
        self,
        entry: TransactionEntry,
        expected: Expected | None,
        timeout_ms: int,
        now_ms: int,
        fresh_producer_id: int | None = None,
    ) -> TransactionFacts | NeedsProducerId | MustAbort | Refusal:
        """Refuse to keep an open transaction for another producer: no release does it (KIP-939, as
        in 4.1.2 and 4.4.0).
        """
        return KEEPS_NOTHING

    def _next_epoch(
        self, facts: TransactionFacts, expected: Expected | None, timeout_ms: int, now_ms: int
    ) -> TransactionFacts | Refusal:
        """Bump the epoch; a request with the previous epoch is a retry, and gets the current
        one.
        """
        producer_id, epoch = facts.producer_id, facts.producer_epoch
        if expected is None:
            return self._initialised(
                facts, (producer_id, epoch + 1), NO_PRODUCER_EPOCH, timeout_ms, now_ms
            )
        if expected[1] == epoch or epoch == NO_PRODUCER_EPOCH:
            return self._initialised(facts, (producer_id, epoch + 1), epoch, timeout_ms, now_ms)
        if expected[1] == facts.last_producer_epoch:
            return self._initialised(
                facts, (producer_id, epoch), facts.last_producer_epoch, timeout_ms, now_ms
            )
        return FENCED

    def _initialised(
        self,
        facts: TransactionFacts,
        given: Expected,
        last_epoch: int,
        timeout_ms: int,
        now_ms: int,
    ) -> TransactionFacts:
        return TransactionFacts(
            producer_id=given[0],
            producer_epoch=given[1],
            timeout_ms=timeout_ms,
            state=EMPTY,
            partitions=(),
            start_ms=NO_TIME,
            last_update_ms=now_ms,
            previous_producer_id=facts.producer_id,
            last_producer_epoch=last_epoch,
            transaction_version=facts.transaction_version,
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
        """Add partitions to the transaction, which starts with the first of them.

        Fails with INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or CONCURRENT_TRANSACTIONS.
        """
        facts = entry.facts
        refusal = self._not_the_producer(facts, producer)
        if refusal is not None:
            return refusal
        if is_busy(entry):
            return BUSY
        added = [each for each in dict.fromkeys(partitions) if not entry.contains(each)]
        if facts.state is ONGOING and not added:
            return Already(*producer)
        return replace(
            facts,
            state=ONGOING,
            partitions=(*facts.partitions, *added),
            start_ms=facts.start_ms if facts.state is ONGOING else now_ms,
            last_update_ms=now_ms,
            transaction_version=transaction_version,
        )

    def verify(
        self,
        entry: TransactionEntry,
        producer: Expected,
        partition: TopicPartition,
        *,
        absent: ErrorCode,
    ) -> ErrorCode:
        """Return whether a partition is in the transaction; `absent` is the release's error if not.

        Writes nothing.
        """
        refusal = self._not_the_producer(entry.facts, producer)
        if refusal is not None:
            return refusal.error
        if entry.facts.state in PREPARED:
            return BUSY.error
        return ErrorCode.NONE if entry.contains(partition) else absent

    def _not_the_producer(self, facts: TransactionFacts, producer: Expected) -> Refusal | None:
        if producer[0] != facts.producer_id:
            return OTHER_PRODUCER
        return None if producer[1] == facts.producer_epoch else FENCED

    # EndTxn
    # ----------------------------------------------------------------------------------------------

    def decide_end(
        self,
        entry: TransactionEntry,
        asked: EndTxnInput,
        now_ms: int,
        fresh_producer_id: int | None = None,
    ) -> TransactionFacts | Already | NeedsProducerId | Refusal:
        """Commit or abort.

        Fails with INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS or
        INVALID_TXN_STATE.
        """
        if asked.transaction_version >= EPOCH_BUMPING_VERSION:
            return self._end_and_bump(entry, asked, now_ms, fresh_producer_id)
        refusal = self._not_the_producer(entry.facts, (asked.producer_id, asked.producer_epoch))
        if refusal is not None:
            return refusal
        if is_busy(entry):
            return BUSY
        if entry.facts.state is ONGOING:
            return self._decided(entry.facts, is_commit=asked.is_commit, now_ms=now_ms)
        return self._repeat_end(entry.facts, is_commit=asked.is_commit)

    def _repeat_end(self, facts: TransactionFacts, *, is_commit: bool) -> Already | Refusal:
        """Respond for a completed transaction: only the same result is accepted as a retry."""
        if facts.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT):
            return Already(facts.producer_id, facts.producer_epoch)
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"{'commit' if is_commit else 'abort'} in {facts.state.label}",
        )

    def _end_and_bump(
        self,
        entry: TransactionEntry,
        asked: EndTxnInput,
        now_ms: int,
        fresh_producer_id: int | None,
    ) -> TransactionFacts | Already | NeedsProducerId | Refusal:
        """With transaction.version 2 the epoch identifies the EndTxn: the current one is new, the
        previous one is a retry.
        """
        facts, producer = entry.facts, (asked.producer_id, asked.producer_epoch)
        if is_busy(entry):
            # checked first: the producer may use the id or epoch of a pending completion
            # (KAFKA-18575)
            return BUSY
        if asked.producer_id != facts.producer_id and not is_repeated_overflow(entry, *producer):
            return OTHER_PRODUCER
        if not may_end_with_bump(entry, *producer):
            return FENCED
        begins = facts.state is ONGOING or (
            facts.state in AT_REST and not asked.is_commit and not is_repeated_end(entry, *producer)
        )
        if begins:
            return self._decided_with_bump(facts, asked, now_ms, fresh_producer_id)
        if facts.state in AT_REST and not is_repeated_end(entry, *producer):
            return Refusal(ErrorCode.INVALID_TXN_STATE, f"nothing to commit in {facts.state.label}")
        return self._repeat_end(facts, is_commit=asked.is_commit)

    def _decided(
        self, facts: TransactionFacts, *, is_commit: bool, now_ms: int
    ) -> TransactionFacts:
        return replace(
            facts,
            state=PREPARE_COMMIT if is_commit else PREPARE_ABORT,
            last_update_ms=now_ms,
            transaction_version=0,
        )

    def _decided_with_bump(
        self,
        facts: TransactionFacts,
        asked: EndTxnInput,
        now_ms: int,
        fresh_producer_id: int | None,
    ) -> TransactionFacts | NeedsProducerId | Refusal:
        """Prepare the transaction and bump the epoch; after the last epoch of an id the producer
        gets another id.

        The reserved epoch is not given to producers; if a record has it, only an abort is possible
        (as in 4.4.0).
        """
        if facts.producer_epoch >= FENCING_EPOCH and asked.is_commit:
            return NO_EPOCH_LEFT
        if is_exhausted(facts.producer_epoch) and fresh_producer_id is None:
            return NEEDS_PRODUCER_ID
        next_producer_id = NO_PRODUCER_ID if fresh_producer_id is None else fresh_producer_id
        return self._prepared_with_bump(facts, asked, now_ms, next_producer_id)

    def _prepared_with_bump(
        self, facts: TransactionFacts, asked: EndTxnInput, now_ms: int, next_producer_id: int
    ) -> TransactionFacts:
        return replace(
            facts,
            state=PREPARE_COMMIT if asked.is_commit else PREPARE_ABORT,
            producer_epoch=min(facts.producer_epoch + 1, FENCING_EPOCH),
            last_producer_epoch=facts.producer_epoch,
            next_producer_id=next_producer_id,
            previous_producer_id=facts.producer_id,
            start_ms=facts.start_ms if facts.state is ONGOING else now_ms,
            last_update_ms=now_ms,
            transaction_version=asked.transaction_version,
        )

    def identity_after(self, facts: TransactionFacts) -> Expected:
        """Return the producer id and epoch to continue with after the end of a transaction: a new
        id if the epochs are exhausted (KAFKA-18660).
        """
        if facts.next_producer_id != NO_PRODUCER_ID:
            return facts.next_producer_id, 0
        return facts.producer_id, facts.producer_epoch

    # Forced aborts
    # ----------------------------------------------------------------------------------------------

    def fence(self, entry: TransactionEntry) -> int:
        """Return the epoch that fences a producer.

        One that was bumped before, and could not be written, is not bumped again.
        """
        epoch = entry.facts.producer_epoch
        return epoch if entry.has_failed_epoch_fence else epoch + 1

    def decide_forced_abort(
        self,
        entry: TransactionEntry,
        transaction_version: int,
        now_ms: int,
        fresh_producer_id: int | None = None,
    ) -> TransactionFacts | NeedsProducerId | Refusal:
        """Abort a transaction on timeout, or for another producer.

        The epoch is bumped, so that the producer is fenced.

        Fails with UNKNOWN_SERVER_ERROR if there is no epoch left to fence it with.

        With transaction.version 2 that is the bump of every EndTxn (KAFKA-19367).
        """
        facts = entry.facts
        assert facts.state is ONGOING and entry.pending is None, (
            f"{entry.transactional_id}: nothing to abort"
        )
        if transaction_version >= EPOCH_BUMPING_VERSION:
            asked = EndTxnInput(
                producer_id=facts.producer_id,
                producer_epoch=facts.producer_epoch,
                is_commit=False,
                transaction_version=transaction_version,
            )
            return self._forced_with_bump(facts, asked, now_ms, fresh_producer_id)
        if facts.producer_epoch >= FENCING_EPOCH and not self.aborts_at_reserved_epoch:
            return NO_EPOCH_LEFT
        entry.take(
            replace(
                facts,
                producer_epoch=min(self.fence(entry), FENCING_EPOCH),
                last_producer_epoch=NO_PRODUCER_EPOCH,
            )
        )
        return self._decided(entry.facts, is_commit=False, now_ms=now_ms)

    def _forced_with_bump(
        self,
        facts: TransactionFacts,
        asked: EndTxnInput,
        now_ms: int,
        fresh_producer_id: int | None,
    ) -> TransactionFacts | NeedsProducerId | Refusal:
        """Abort as the producer itself would: after the last epoch it gets a new producer id."""
        return self._decided_with_bump(facts, asked, now_ms, fresh_producer_id)

    def on_forced_abort_failed(self, entry: TransactionEntry) -> None:
        """The record of a forced abort could not be written: the bumped epoch is used by the next
        attempt.
        """
        entry.has_failed_epoch_fence = True

    # Commit of a record
    # ----------------------------------------------------------------------------------------------

    def held(self, before: TransactionFacts, written: TransactionFacts) -> TransactionFacts:
        """Return the state after a record is committed.

        Before 4.1 InitProducerId resets the start time in the log, but not in memory.
        """
        return replace(written, start_ms=before.start_ms) if written.state is EMPTY else written

    # Completion
    # ----------------------------------------------------------------------------------------------

    def completed(self, entry: TransactionEntry, now_ms: int) -> TransactionFacts:
        """Return the facts to write when all markers are written: the transaction is completed."""
        facts = entry.facts
        entry.has_failed_epoch_fence = False
        done = replace(facts, state=COMPLETED[facts.state], partitions=(), last_update_ms=now_ms)
        if facts.transaction_version < EPOCH_BUMPING_VERSION:
            return done
        if facts.next_producer_id == NO_PRODUCER_ID:
            return replace(done, previous_producer_id=facts.producer_id)
        return replace(
            done,
            producer_id=facts.next_producer_id,
            producer_epoch=0,
            previous_producer_id=facts.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )


def is_busy(entry: TransactionEntry) -> bool:
    """Return whether a transition is pending.

    After EndTxn that is so until all markers are written, for any request (as in 3.9.1).
    """
    return entry.pending is not None or entry.facts.state in PREPARED


def abort_asked(facts: TransactionFacts, transaction_version: int) -> EndTxnInput:
    """Return the EndTxn with which the current producer itself would abort."""
    return EndTxnInput(
        producer_id=facts.producer_id,
        producer_epoch=facts.producer_epoch,
        is_commit=False,
        transaction_version=transaction_version,
    )


# --------------------------------------------------------------------------------------------------
# Since 4.0: CONCURRENT_TRANSACTIONS takes precedence over the check of id and epoch
#
# With transaction.version 2 the producer may use its next epoch, or its next id, while the
# coordinator is still completing the transaction.
# Source: KAFKA-18575; compared with Apache Kafka 4.1.2 and 4.4.0.


class TransactionRulesSince40(TransactionRules):
    """The rules of 4.0 and later."""

    aborts_at_reserved_epoch = True

    def decide_add(
        self,
        entry: TransactionEntry,
        producer: Expected,
        partitions: Collection[TopicPartition],
        transaction_version: int,
        now_ms: int,
    ) -> TransactionFacts | Already | Refusal:
        """Add partitions to the transaction; while the previous one is being completed, return
        CONCURRENT_TRANSACTIONS.
        """
        if is_busy(entry):
            return BUSY
        facts = super().decide_add(entry, producer, partitions, transaction_version, now_ms)
        if isinstance(facts, TransactionFacts):
            return replace(
                facts, previous_producer_id=facts.producer_id
            )  # the former, exhausted id is invalid from now on
        return facts

    def _forced_with_bump(
        self,
        facts: TransactionFacts,
        asked: EndTxnInput,
        now_ms: int,
        fresh_producer_id: int | None,
    ) -> TransactionFacts | NeedsProducerId | Refusal:
        """Abort with the reserved epoch after the last one (KAFKA-20090).

        If the producer aborts, too, it gets that epoch, and its next transaction never ends.
        """
        if facts.producer_epoch >= FENCING_EPOCH:
            return NO_EPOCH_LEFT
        return self._prepared_with_bump(facts, asked, now_ms, NO_PRODUCER_ID)


class TransactionRulesSince41(TransactionRulesSince40):
    """The rules of 4.1 and later."""

    def held(self, before: TransactionFacts, written: TransactionFacts) -> TransactionFacts:
        """Return the state after a record is committed: that of the record."""
        return written


class TransactionRulesSince43(TransactionRulesSince41):
    """The rules of 4.3 and later."""

    def _forced_with_bump(
        self,
        facts: TransactionFacts,
        asked: EndTxnInput,
        now_ms: int,
        fresh_producer_id: int | None,
    ) -> TransactionFacts | NeedsProducerId | Refusal:
        """Abort as the producer itself would: after the last epoch it gets a new producer id
        (KAFKA-20090).
        """
        return self._decided_with_bump(facts, asked, now_ms, fresh_producer_id)
