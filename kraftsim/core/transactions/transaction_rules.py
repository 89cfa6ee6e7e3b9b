"""What a transaction coordinator answers: each decision looks at an entry and proposes the facts that are to be written next, or refuses.

Nothing changes here, with one exception that Kafka makes, too: an epoch raised to fence a producer holds at once, before its record is written.
Every method may be replaced by that of a historical bug.
Source: KIP-98, KIP-360, KIP-588, KIP-890; TransactionCoordinator, TransactionMetadata; codes asked of Apache Kafka 3.9.1 and 4.4.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.transactions.epoch_rules import (
    FENCING_EPOCH,
    is_exhausted,
    is_known_producer,
    is_repeated_end,
    is_repeated_overflow,
    may_end_with_bump,
)
from kraftsim.core.transactions.transaction_entry import NO_TIME, TopicPartition, TransactionEntry, TransactionFacts
from kraftsim.core.transactions.transaction_state import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETED,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
)
from protocol.batches import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.errors import ErrorCode

EPOCH_BUMPING_VERSION: Final = 2
"""From this transaction.version on every end of a transaction raises the epoch (KIP-890)."""


@dataclass(frozen=True, slots=True)
class NeedsProducerId:
    """Ask again with a fresh producer id."""


@dataclass(frozen=True, slots=True)
class MustAbort:
    """The transaction of the former producer must be aborted first."""


@dataclass(frozen=True, slots=True)
class Already:
    """What is asked for holds already; nothing is to be written."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAsked:
    """An EndTxn. `transaction_version` is 2 if the one who asks expects the epoch to be raised."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int


NEEDS_PRODUCER_ID: Final = NeedsProducerId()
MUST_ABORT: Final = MustAbort()
BUSY: Final = Refusal(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction before has not ended yet")
FENCED: Final = Refusal(ErrorCode.PRODUCER_FENCED, "another producer has taken over")
NO_EPOCH_LEFT: Final = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the producer id has no epoch left")
OTHER_PRODUCER: Final = Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional id belongs to another producer id")
Expected = tuple[int, int]
"""The producer id and epoch that a producer names as its own (KIP-360)."""


class TransactionRules:
    """Decisions about one transactional id. `fresh_producer_id` is given where a decision came back with NeedsProducerId."""

    fences_with_the_last_epoch_again = False
    """Whether a transaction at the coordinator's own epoch, where nothing is left to fence with, is aborted all the same."""

    # InitProducerId ------------------------------------------------------------------------------------------------------------------------

    def decide_init(
        self, entry: TransactionEntry, expected: Expected | None, timeout_ms: int, now_ms: int, fresh_producer_id: int | None = None
    ) -> TransactionFacts | NeedsProducerId | MustAbort | Refusal:
        """Give the id to whoever asks: with a higher epoch, or with another producer id where the epochs are used up.

        Refuses with CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, or UNKNOWN_SERVER_ERROR where a last epoch is asked for again (asked of 3.9.1, 4.4.0).
        """
        facts = entry.facts
        if is_busy(entry):
            return BUSY
        if expected is not None and not is_known_producer(entry, *expected):
            return FENCED
        if facts.state is ONGOING:
            return MUST_ABORT
        assert facts.state in AT_REST, f"{entry.transactional_id} is {facts.state.label} and nothing is under way"
        if is_exhausted(facts.producer_epoch) and (expected is None or expected[1] == facts.producer_epoch):
            if fresh_producer_id is None:
                return NEEDS_PRODUCER_ID
            last_epoch = NO_PRODUCER_EPOCH if expected is None else facts.producer_epoch
            return self._initialised(facts, (fresh_producer_id, 0), last_epoch, timeout_ms, now_ms)
        if is_exhausted(facts.producer_epoch):
            return NO_EPOCH_LEFT
        return self._next_epoch(facts, expected, timeout_ms, now_ms)

    def _next_epoch(self, facts: TransactionFacts, expected: Expected | None, timeout_ms: int, now_ms: int) -> TransactionFacts | Refusal:
        """Raise the epoch; a producer that names the epoch before the present one has asked before, and is told the present one."""
        producer_id, epoch = facts.producer_id, facts.producer_epoch
        if expected is None:
            return self._initialised(facts, (producer_id, epoch + 1), NO_PRODUCER_EPOCH, timeout_ms, now_ms)
        if expected[1] == epoch or epoch == NO_PRODUCER_EPOCH:
            return self._initialised(facts, (producer_id, epoch + 1), epoch, timeout_ms, now_ms)
        if expected[1] == facts.last_producer_epoch:
            return self._initialised(facts, (producer_id, epoch), facts.last_producer_epoch, timeout_ms, now_ms)
        return FENCED

    def _initialised(self, facts: TransactionFacts, given: Expected, last_epoch: int, timeout_ms: int, now_ms: int) -> TransactionFacts:
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

    # AddPartitionsToTxn, AddOffsetsToTxn ---------------------------------------------------------------------------------------------------

    def decide_add(
        self, entry: TransactionEntry, producer: Expected, partitions: Collection[TopicPartition], transaction_version: int, now_ms: int
    ) -> TransactionFacts | Already | Refusal:
        """Let partitions take part in the transaction, which begins with the first of them.

        Refuses with INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or CONCURRENT_TRANSACTIONS.
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

    def verify(self, entry: TransactionEntry, producer: Expected, partition: TopicPartition, *, absent: ErrorCode) -> ErrorCode:
        """Tell whether a partition takes part in the transaction; `absent` is how a release says that it does not. Nothing is written."""
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

    # EndTxn --------------------------------------------------------------------------------------------------------------------------------

    def decide_end(
        self, entry: TransactionEntry, asked: EndAsked, now_ms: int, fresh_producer_id: int | None = None
    ) -> TransactionFacts | Already | NeedsProducerId | Refusal:
        """Commit or abort.

        Refuses with INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS or INVALID_TXN_STATE.
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
        return self._end_again(entry.facts, is_commit=asked.is_commit)

    def _end_again(self, facts: TransactionFacts, *, is_commit: bool) -> Already | Refusal:
        """Answer for a transaction that has ended: only the same decision is taken for a repetition."""
        if facts.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT):
            return Already(facts.producer_id, facts.producer_epoch)
        return Refusal(ErrorCode.INVALID_TXN_STATE, f"{'commit' if is_commit else 'abort'} in {facts.state.label}")

    def _end_and_bump(
        self, entry: TransactionEntry, asked: EndAsked, now_ms: int, fresh_producer_id: int | None
    ) -> TransactionFacts | Already | NeedsProducerId | Refusal:
        """With transaction.version 2 the epoch says which end this is: the present one is a new one, the one before is a repetition."""
        facts, producer = entry.facts, (asked.producer_id, asked.producer_epoch)
        if is_busy(entry):
            return BUSY  # first of all: the producer may know of an id or an epoch that holds once the end before is over (KAFKA-18575)
        if asked.producer_id != facts.producer_id and not is_repeated_overflow(entry, *producer):
            return OTHER_PRODUCER
        if not may_end_with_bump(entry, *producer):
            return FENCED
        begins = facts.state is ONGOING or (facts.state in AT_REST and not asked.is_commit and not is_repeated_end(entry, *producer))
        if begins:
            return self._decided_with_bump(facts, asked, now_ms, fresh_producer_id)
        if facts.state in AT_REST and not is_repeated_end(entry, *producer):
            return Refusal(ErrorCode.INVALID_TXN_STATE, f"nothing to commit in {facts.state.label}")
        return self._end_again(facts, is_commit=asked.is_commit)

    def _decided(self, facts: TransactionFacts, *, is_commit: bool, now_ms: int) -> TransactionFacts:
        return replace(facts, state=PREPARE_COMMIT if is_commit else PREPARE_ABORT, last_update_ms=now_ms, transaction_version=0)

    def _decided_with_bump(
        self, facts: TransactionFacts, asked: EndAsked, now_ms: int, fresh_producer_id: int | None
    ) -> TransactionFacts | NeedsProducerId | Refusal:
        """Decide, and raise the epoch with it; after the last epoch of an id the producer goes on with another id.

        Nobody is given the coordinator's own epoch; where a record says it all the same, only an abort gets out of it (asked of 4.4.0).
        """
        if facts.producer_epoch >= FENCING_EPOCH and asked.is_commit:
            return NO_EPOCH_LEFT
        if is_exhausted(facts.producer_epoch) and fresh_producer_id is None:
            return NEEDS_PRODUCER_ID
        return replace(
            facts,
            state=PREPARE_COMMIT if asked.is_commit else PREPARE_ABORT,
            producer_epoch=min(facts.producer_epoch + 1, FENCING_EPOCH),
            last_producer_epoch=facts.producer_epoch,
            next_producer_id=NO_PRODUCER_ID if fresh_producer_id is None else fresh_producer_id,
            previous_producer_id=facts.producer_id,
            start_ms=facts.start_ms if facts.state is ONGOING else now_ms,
            last_update_ms=now_ms,
            transaction_version=asked.transaction_version,
        )

    # Aborting for others -------------------------------------------------------------------------------------------------------------------

    def fence(self, entry: TransactionEntry) -> int:
        """Return the epoch with which a producer is fenced. One that was raised before, and could not be written, is not raised again."""
        epoch = entry.facts.producer_epoch
        return epoch if entry.has_failed_epoch_fence else epoch + 1

    def decide_forced_abort(
        self, entry: TransactionEntry, transaction_version: int, now_ms: int, fresh_producer_id: int | None = None
    ) -> TransactionFacts | NeedsProducerId | Refusal:
        """Abort a transaction over its producer's head: it took too long, or another producer came. Its epoch is raised, so that it is fenced.

        Refuses with UNKNOWN_SERVER_ERROR where there is no epoch to fence it with.

        With transaction.version 2 that is the bump that every end brings (KAFKA-19367), and a new producer id after the last epoch (KAFKA-20090).
        """
        facts = entry.facts
        assert facts.state is ONGOING and entry.pending is None, f"{entry.transactional_id}: nothing to abort"
        if transaction_version >= EPOCH_BUMPING_VERSION:
            asked = EndAsked(
                producer_id=facts.producer_id, producer_epoch=facts.producer_epoch, is_commit=False, transaction_version=transaction_version
            )
            return self._decided_with_bump(facts, asked, now_ms, fresh_producer_id)
        if facts.producer_epoch >= FENCING_EPOCH and not self.fences_with_the_last_epoch_again:
            return NO_EPOCH_LEFT
        entry.take(replace(facts, producer_epoch=min(self.fence(entry), FENCING_EPOCH), last_producer_epoch=NO_PRODUCER_EPOCH))
        return self._decided(entry.facts, is_commit=False, now_ms=now_ms)

    def on_forced_abort_failed(self, entry: TransactionEntry) -> None:
        """The record of a forced abort could not be written: the epoch that was raised for it is used by the next attempt."""
        entry.has_failed_epoch_fence = True

    # Holding -------------------------------------------------------------------------------------------------------------------------------

    def held(self, before: TransactionFacts, written: TransactionFacts) -> TransactionFacts:
        """Return what holds once a record is committed. Before 4.1 InitProducerId forgets in the log, and not in memory, when the last one began."""
        return replace(written, start_ms=before.start_ms) if written.state is EMPTY else written

    # Completing ----------------------------------------------------------------------------------------------------------------------------

    def completed(self, entry: TransactionEntry, now_ms: int) -> TransactionFacts:
        """Return what is written when all markers are: the transaction is over, and the next one may begin."""
        facts = entry.facts
        entry.has_failed_epoch_fence = False
        done = replace(facts, state=COMPLETED[facts.state], partitions=(), last_update_ms=now_ms)
        if facts.transaction_version < EPOCH_BUMPING_VERSION:
            return done
        if facts.next_producer_id == NO_PRODUCER_ID:
            return replace(done, previous_producer_id=facts.producer_id)
        return replace(
            done, producer_id=facts.next_producer_id, producer_epoch=0, previous_producer_id=facts.producer_id, next_producer_id=NO_PRODUCER_ID
        )


def is_busy(entry: TransactionEntry) -> bool:
    """Tell whether a change is on its way. From the decision on that is so until all markers are written, whatever is asked (asked of 3.9.1)."""
    return entry.pending is not None or entry.facts.state in PREPARED


def abort_asked(facts: TransactionFacts, transaction_version: int) -> EndAsked:
    """Return the EndTxn with which the present producer itself would abort."""
    return EndAsked(producer_id=facts.producer_id, producer_epoch=facts.producer_epoch, is_commit=False, transaction_version=transaction_version)
