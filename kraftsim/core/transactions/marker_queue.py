"""The markers that must be written before a transaction is over: who is to write which, what was asked of whom, and what is left.

A stepper. Inputs: a transaction is decided (`add`), a broker has answered (`on_answer`) or is lost (`on_lost`), time has passed or the metadata has
changed (`retry`), a partition of `__transaction_state` went to another broker (`forget_shard`). What is to be done comes from `take_effects`.
Of each broker one request at a time is asked, with everything that has gathered for it.
Source: TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final

from msgspec import Struct

from kraftsim.core.transactions.transaction_entry import TopicPartition, TransactionEntry, TransactionFacts
from kraftsim.core.transactions.transaction_state import PREPARE_COMMIT
from protocol.errors import ErrorCode


class NoLeader(Enum):
    """Why nobody can be asked to write a marker."""

    UNKNOWN = "nobody leads the partition now"
    GONE = "there is no such partition any more"


LeaderOf = Callable[[TopicPartition], int | NoLeader]


class EndedTransaction:
    """A transaction that is decided, and the facts that hold once it is over.

    It is told from another by being itself: the same id may be decided anew, under another coordinator epoch.
    """

    __slots__ = ("completion", "coordinator_epoch", "entry", "is_commit", "producer_epoch", "producer_id", "shard_number", "transaction_version")

    def __init__(self, entry: TransactionEntry, completion: TransactionFacts, shard_number: int, coordinator_epoch: int) -> None:
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
        """Whose transaction it is."""
        return self.entry.transactional_id


class Marker(Struct, frozen=True):
    """Markers of one transaction for partitions that one broker leads."""

    ended: EndedTransaction
    partitions: tuple[TopicPartition, ...]


class SendMarkers(Struct, frozen=True):
    """Ask a broker to write markers; then `on_answer`, or `on_lost` if none comes."""

    broker_id: int
    markers: tuple[Marker, ...]


class Complete(Struct, frozen=True):
    """All markers of a transaction are written: write that it is over. If that fails for now, `on_not_completed`."""

    ended: EndedTransaction


class RetryLater(Struct, frozen=True):
    """Call `retry` after a while, or when the metadata has changed."""


Effect = SendMarkers | Complete | RetryLater
MarkerErrors = Mapping[int, Mapping[TopicPartition, ErrorCode]]
"""producer id -> partition -> how it went."""

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
"""Somebody else leads the partition, or will; the marker is still owed."""
OVERTAKEN: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""A later epoch has been there: this coordinator has nothing to say about the transaction any more."""
WITHOUT_MARKER: Final = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""The partition cannot hold markers, and so nothing of the transaction either."""


class MarkerQueue:
    """Markers of all transactions that this broker coordinates. `leader_of` says who leads a partition as far as is known now."""

    def __init__(self, leader_of: LeaderOf) -> None:
        self._leader_of = leader_of
        self._effects: list[Effect] = []
        self.pending: dict[str, EndedTransaction] = {}
        """The transactions that are decided and not over, by transactional id."""
        self._gathered: dict[int, list[Marker]] = {}
        self._in_flight: dict[int, tuple[Marker, ...]] = {}
        self._waiting: list[Marker] = []
        """Markers that nobody can be asked for at present."""
        self._to_complete: list[EndedTransaction] = []
        """Transactions whose last record could not be written."""

    def take_effects(self) -> list[Effect]:
        """Return what is to be done now."""
        for broker_id in list(self._gathered):
            if broker_id not in self._in_flight:
                markers = tuple(self._gathered.pop(broker_id))
                self._in_flight[broker_id] = markers
                self._effects.append(SendMarkers(broker_id, markers))
        effects, self._effects = self._effects, []
        return effects

    # Inputs --------------------------------------------------------------------------------------------------------------------------------

    def add(self, ended: EndedTransaction) -> None:
        """A transaction is decided: have its markers written. One of the same id that was not over is forgotten."""
        self.pending[ended.transactional_id] = ended
        self._place(ended, ended.entry.facts.partitions)
        self.settle(ended)

    def on_answer(self, broker_id: int, errors: MarkerErrors) -> None:
        """A broker has said how it went."""
        for ended in self.take_answer(broker_id, errors):
            self.settle(ended)

    def on_lost(self, broker_id: int) -> None:
        """No answer will come from a broker; whether it has written the markers is unknown, and another one does no harm."""
        for marker in self._in_flight.pop(broker_id, ()):
            self._wait(marker)

    def retry(self) -> None:
        """Ask again for whatever waits."""
        waiting, self._waiting = self._waiting, []
        for marker in waiting:
            if self.is_current(marker.ended):
                self._place(marker.ended, marker.partitions)
                self.settle(marker.ended)
        to_complete, self._to_complete = self._to_complete, []
        self._effects.extend(Complete(ended) for ended in to_complete)

    def on_not_completed(self, ended: EndedTransaction) -> None:
        """The last record of a transaction could not be written now."""
        self._to_complete.append(ended)
        self._effects.append(RetryLater())

    def forget_shard(self, shard_number: int) -> None:
        """Other brokers coordinate these transactions now; what is under way is answered to nobody."""
        for ended in [each for each in self.pending.values() if each.shard_number == shard_number]:
            self.cancel(ended)
        self._waiting = [marker for marker in self._waiting if marker.ended.shard_number != shard_number]
        self._to_complete = [ended for ended in self._to_complete if ended.shard_number != shard_number]
        for broker_id, markers in list(self._gathered.items()):
            left = [marker for marker in markers if marker.ended.shard_number != shard_number]
            if left:
                self._gathered[broker_id] = left
            else:
                del self._gathered[broker_id]

    def take_answer(self, broker_id: int, errors: MarkerErrors) -> list[EndedTransaction]:
        """Take note of what a broker has written, and return the transactions that may be over by it: `settle` each."""
        touched: dict[EndedTransaction, None] = {}
        for marker in self._in_flight.pop(broker_id, ()):
            if self.is_current(marker.ended) and self._judge(marker, errors.get(marker.ended.producer_id, {})):
                touched[marker.ended] = None
        return list(touched)

    # Rules ---------------------------------------------------------------------------------------------------------------------------------

    def is_current(self, ended: EndedTransaction) -> bool:
        """Tell whether markers are still owed for this very transaction."""
        return self.pending.get(ended.transactional_id) is ended

    def cancel(self, ended: EndedTransaction) -> None:
        """Ask for no further markers of this very transaction; one that has taken its place stays (KAFKA-16352)."""
        if self.is_current(ended):
            del self.pending[ended.transactional_id]

    def settle(self, ended: EndedTransaction) -> None:
        """Let a transaction be completed if no marker is missing: by whoever takes it out, and so once (KAFKA-10080)."""
        if self.is_current(ended) and not ended.entry.facts.partitions:
            del self.pending[ended.transactional_id]
            self._effects.append(Complete(ended))

    def _judge(self, marker: Marker, errors: Mapping[TopicPartition, ErrorCode]) -> bool:
        """Tell whether the transaction goes on here; what could not be written waits."""
        written, again = [], []
        for partition in marker.partitions:
            error = errors.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if error in OVERTAKEN:
                self.cancel(marker.ended)
                return False
            if error is ErrorCode.NONE or error in WITHOUT_MARKER:
                written.append(partition)
            else:
                again.append(partition)
        marker.ended.entry.marked(written)
        if again:
            self._wait(Marker(marker.ended, tuple(again)))
        return True

    def _wait(self, marker: Marker) -> None:
        self._waiting.append(marker)
        self._effects.append(RetryLater())

    def _place(self, ended: EndedTransaction, partitions: Collection[TopicPartition]) -> None:
        """Put each partition with its leader. One that is gone needs no marker: its topic is deleted."""
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
