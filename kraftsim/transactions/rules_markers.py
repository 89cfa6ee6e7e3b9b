"""The requests of transactions between brokers: which WriteTxnMarkers a coordinator sends where,
and which verifications a partition leader sends to coordinators.

Both queues are step functions: each input (a transaction is prepared, a broker has responded or
not, the backoff, a metadata change, another leader of `__transaction_state`) returns its effects,
in order. At most one request is in flight to each broker; what is queued meanwhile goes into the
next one.
Source: TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler,
kafka.server.AddPartitionsToTxnManager; KIP-98, KIP-890.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from msgspec import Struct

from kraftsim.transactions.rules_state import (
    PREPARE_COMMIT,
    TopicPartition,
    TransactionEntry,
    TransactionFacts,
)
from protocol.errors import ErrorCode

# --------------------------------------------------------------------------------------------------
# Pending transaction markers, by broker
#
# Inputs: a transaction is prepared (`add`), a broker has responded (`on_answer`) or not
# (`on_lost`), the backoff or a metadata change (`retry`), another broker leads a partition of
# `__transaction_state` (`forget_shard`). All but the last return their effects.


class NoLeader(Enum):
    """Why a marker cannot be sent."""

    UNKNOWN = "the partition has no leader"
    GONE = "there is no such partition any more"


LeaderOf = Callable[[TopicPartition], int | NoLeader]


class PreparedTransaction:
    """A prepared transaction, and its state after completion.

    Compared by identity: the same id may be prepared again, with another coordinator epoch.
    """

    __slots__ = (
        "completion",
        "coordinator_epoch",
        "entry",
        "is_commit",
        "producer_epoch",
        "producer_id",
        "shard_number",
        "transaction_version",
    )

    def __init__(
        self,
        entry: TransactionEntry,
        completion: TransactionFacts,
        shard_number: int,
        coordinator_epoch: int,
    ) -> None:
        self.entry = entry
        self.completion = completion
        self.shard_number = shard_number
        self.coordinator_epoch = coordinator_epoch
        self.producer_id = entry.facts.producer_id
        self.producer_epoch = entry.facts.producer_epoch
        self.is_commit = entry.facts.state is PREPARE_COMMIT
        self.transaction_version = entry.facts.transaction_version

    @property
    def transactional_id(self) -> str:
        """The transactional id."""
        return self.entry.transactional_id


class Marker(Struct, frozen=True):
    """Markers of one transaction for partitions that one broker leads."""

    ended: PreparedTransaction
    partitions: tuple[TopicPartition, ...]


class SendMarkers(Struct, frozen=True):
    """Send WriteTxnMarkers to a broker; then call `on_answer`, or `on_lost` without a response."""

    broker_id: int
    markers: tuple[Marker, ...]


class Complete(Struct, frozen=True):
    """All markers of a transaction are written: append its completion.

    If that fails for now, call `on_not_completed`.
    """

    ended: PreparedTransaction


class RetryLater(Struct, frozen=True):
    """Call `retry` after the backoff, or when the metadata has changed."""


MarkerEffect = SendMarkers | Complete | RetryLater
MarkerErrors = Mapping[int, Mapping[TopicPartition, ErrorCode]]
"""producer id -> partition -> error."""

RETRIED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""The leader has changed or is changing; the marker remains pending."""
OVERTAKEN: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
"""A later coordinator epoch has written: this coordinator is fenced for the transaction."""
WITHOUT_MARKER: Final = frozenset(
    {ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)
"""The partition cannot have markers, and so no records of the transaction either."""


class MarkerQueue:
    """The pending markers of all transactions of this coordinator.

    `leader_of` returns the current leader of a partition.
    """

    def __init__(self, leader_of: LeaderOf) -> None:
        self._leader_of = leader_of
        self._effects: list[MarkerEffect] = []
        self.pending: dict[str, PreparedTransaction] = {}
        """The prepared transactions that are not completed, by transactional id."""
        self._gathered: dict[int, list[Marker]] = {}
        self._in_flight: dict[int, tuple[Marker, ...]] = {}
        self._waiting: list[Marker] = []
        """Markers without a known leader, or to be retried."""
        self._to_complete: list[PreparedTransaction] = []
        """Transactions whose completion could not be appended."""

    def _due(self) -> list[MarkerEffect]:
        for broker_id in list(self._gathered):
            if broker_id not in self._in_flight:
                markers = tuple(self._gathered.pop(broker_id))
                self._in_flight[broker_id] = markers
                self._effects.append(SendMarkers(broker_id, markers))
        effects, self._effects = self._effects, []
        return effects

    # Inputs
    # ----------------------------------------------------------------------------------------------

    def add(self, ended: PreparedTransaction) -> list[MarkerEffect]:
        """A transaction is prepared: send its markers.

        It replaces one of the same id that is not completed.
        """
        self.pending[ended.transactional_id] = ended
        self._place(ended, ended.entry.facts.partitions)
        return self.settle_all([ended])

    def on_answer(self, broker_id: int, errors: MarkerErrors) -> list[MarkerEffect]:
        """Handle a WriteTxnMarkers response."""
        return self.settle_all(self.take_answer(broker_id, errors))

    def settle_all(self, transactions: Sequence[PreparedTransaction]) -> list[MarkerEffect]:
        """Complete those of the transactions that lack no marker."""
        for ended in transactions:
            self.settle(ended)
        return self._due()

    def on_lost(self, broker_id: int) -> list[MarkerEffect]:
        """No response from a broker; whether the markers are written is unknown, and writing them
        again is harmless.
        """
        for marker in self._in_flight.pop(broker_id, ()):
            self._wait(marker)
        return self._due()

    def retry(self) -> list[MarkerEffect]:
        """Retry everything that waits."""
        waiting, self._waiting = self._waiting, []
        for marker in waiting:
            if self.is_current(marker.ended):
                self._place(marker.ended, marker.partitions)
                self.settle(marker.ended)
        to_complete, self._to_complete = self._to_complete, []
        self._effects.extend(Complete(ended) for ended in to_complete)
        return self._due()

    def on_not_completed(self, ended: PreparedTransaction) -> list[MarkerEffect]:
        """The completion of a transaction could not be appended now."""
        self._to_complete.append(ended)
        self._effects.append(RetryLater())
        return self._due()

    def forget_shard(self, shard_number: int) -> None:
        """Other brokers coordinate these transactions now; responses in flight are ignored. It has
        no effects.
        """
        for ended in [each for each in self.pending.values() if each.shard_number == shard_number]:
            self.cancel(ended)
        self._waiting = [
            marker for marker in self._waiting if marker.ended.shard_number != shard_number
        ]
        self._to_complete = [
            ended for ended in self._to_complete if ended.shard_number != shard_number
        ]
        for broker_id, markers in list(self._gathered.items()):
            left = [marker for marker in markers if marker.ended.shard_number != shard_number]
            if left:
                self._gathered[broker_id] = left
            else:
                del self._gathered[broker_id]

    def take_answer(self, broker_id: int, errors: MarkerErrors) -> list[PreparedTransaction]:
        """Record the written markers of a broker, and return the transactions that may be complete:
        pass them to `settle_all`.
        """
        touched: dict[PreparedTransaction, None] = {}
        for marker in self._in_flight.pop(broker_id, ()):
            if self.is_current(marker.ended) and self._judge(
                marker, errors.get(marker.ended.producer_id, {})
            ):
                touched[marker.ended] = None
        return list(touched)

    # Rules
    # ----------------------------------------------------------------------------------------------

    def is_current(self, ended: PreparedTransaction) -> bool:
        """Return whether markers of exactly this transaction are pending."""
        return self.pending.get(ended.transactional_id) is ended

    def cancel(self, ended: PreparedTransaction) -> None:
        """Cancel the markers of exactly this transaction; one that has replaced it stays
        (KAFKA-16352).
        """
        if self.is_current(ended):
            del self.pending[ended.transactional_id]

    def settle(self, ended: PreparedTransaction) -> None:
        """Complete a transaction if no marker is missing: once, by the caller that removes it
        (KAFKA-10080).
        """
        if self.is_current(ended) and not ended.entry.facts.partitions:
            del self.pending[ended.transactional_id]
            self._effects.append(Complete(ended))

    def _judge(self, marker: Marker, errors: Mapping[TopicPartition, ErrorCode]) -> bool:
        """Handle the errors of markers; retriable ones wait.

        Return whether the transaction is still pending here.
        """
        written, retried = [], []
        for partition in marker.partitions:
            error = errors.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if error in OVERTAKEN:
                self.cancel(marker.ended)
                return False
            if error is ErrorCode.NONE or error in WITHOUT_MARKER:
                written.append(partition)
            else:
                retried.append(partition)
        marker.ended.entry.marked(written)
        if retried:
            self._wait(Marker(marker.ended, tuple(retried)))
        return True

    def _wait(self, marker: Marker) -> None:
        self._waiting.append(marker)
        self._effects.append(RetryLater())

    def _place(self, ended: PreparedTransaction, partitions: Collection[TopicPartition]) -> None:
        """Assign each partition to its leader. A deleted one needs no marker."""
        placed: dict[int, list[TopicPartition]] = {}
        gone, leaderless = [], []
        for partition in partitions:
            match self._leader_of(partition):
                case NoLeader.GONE:
                    gone.append(partition)
                case NoLeader.UNKNOWN:
                    leaderless.append(partition)
                case broker_id:
                    placed.setdefault(broker_id, []).append(partition)
        for broker_id, theirs in placed.items():
            self._gathered.setdefault(broker_id, []).append(Marker(ended, tuple(theirs)))
        if leaderless:
            self._wait(Marker(ended, tuple(leaderless)))
        if gone:
            ended.entry.marked(gone)


# --------------------------------------------------------------------------------------------------
# Verification of a transaction's partitions, by coordinator (KIP-890)
#
# A request has one entry per transactional id: of two, the later one replaces the earlier, unless
# its epoch is lower.

VerificationErrors = Mapping[TopicPartition, ErrorCode]
"""An error code per requested partition; NONE: it is in the transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One transaction, and its partitions.

    `adds`: they are to be added, not only verified (transaction.version 2).
    """

    waiter: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool

    def all_with(self, error: ErrorCode) -> VerificationErrors:
        """Return the same error for every partition."""
        return dict.fromkeys(self.partitions, error)


@dataclass(frozen=True, slots=True)
class Ask:
    """Send AddPartitionsToTxn to a coordinator, with at most one transaction per id."""

    coordinator_id: int
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """The result of a verification."""

    question: Question
    errors: VerificationErrors


VerificationEffect = Ask | VerificationResult
FENCED: Final = ErrorCode.INVALID_PRODUCER_EPOCH
RETRY: Final = ErrorCode.NETWORK_EXCEPTION


class VerificationQueue:
    """Requests by coordinator. Every call returns the effects, in order."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[str, Question]] = {}
        self._under_way: dict[int, tuple[Question, ...]] = {}

    def add(self, coordinator_id: int, question: Question) -> list[VerificationEffect]:
        """Add a verification."""
        waiting = self._waiting.setdefault(coordinator_id, {})
        known = waiting.get(question.transactional_id)
        if known is not None and known.producer_epoch > question.producer_epoch:
            return [VerificationResult(question, question.all_with(FENCED))]
        effects: list[VerificationEffect] = []
        if known is not None:
            error = FENCED if known.producer_epoch < question.producer_epoch else RETRY
            effects.append(
                VerificationResult(waiting.pop(known.transactional_id), known.all_with(error))
            )
        waiting[question.transactional_id] = question
        return [*effects, *self._next(coordinator_id)]

    def on_answer(
        self, coordinator_id: int, answers: Mapping[str, VerificationErrors]
    ) -> list[VerificationEffect]:
        """Handle a coordinator's response by transactional id; partitions without an error are in
        the transaction.
        """
        asked = self._asked(coordinator_id)
        return self._over(
            coordinator_id,
            {
                each.waiter: {
                    **each.all_with(ErrorCode.NONE),
                    **answers.get(each.transactional_id, {}),
                }
                for each in asked
            },
        )

    def on_error(self, coordinator_id: int, error: ErrorCode) -> list[VerificationEffect]:
        """The whole request failed, or was not answered."""
        return self._over(
            coordinator_id,
            {each.waiter: each.all_with(error) for each in self._asked(coordinator_id)},
        )

    def _asked(self, coordinator_id: int) -> Sequence[Question]:
        assert coordinator_id in self._under_way, (
            f"broker {coordinator_id} has no request in flight"
        )
        return self._under_way[coordinator_id]

    def _over(
        self, coordinator_id: int, errors: Mapping[int, VerificationErrors]
    ) -> list[VerificationEffect]:
        asked = self._under_way.pop(coordinator_id)
        results: list[VerificationEffect] = [
            VerificationResult(each, errors[each.waiter]) for each in asked
        ]
        return [*self._next(coordinator_id), *results]

    def _next(self, coordinator_id: int) -> list[VerificationEffect]:
        """Send the waiting requests, if none is in flight."""
        waiting = self._waiting.get(coordinator_id)
        if coordinator_id in self._under_way or not waiting:
            return []
        questions = self._under_way[coordinator_id] = tuple(waiting.values())
        del self._waiting[coordinator_id]
        return [Ask(coordinator_id, questions)]
