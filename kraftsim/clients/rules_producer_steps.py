"""The records, batches, inputs and effects of a producer's state machine, and the queue of one
partition.

Separate from the rules, as the I/O code and the tests share them.
Source: KIP-98, KIP-360, org.apache.kafka.clients.producer.internals.{ProducerBatch, Sender,
RecordAccumulator, TransactionManager, TxnPartitionEntry}.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile
from typing import NamedTuple

import msgspec

from kraftsim.producer_state.rules_entries import increment_sequence, sequences_between
from protocol.errors import ErrorCode

NO_OFFSET = -1
MAX_PRODUCER_EPOCH = 32767
"""The last epoch of a producer id (int16)."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class ProducerIdentity(NamedTuple):
    """Producer id and epoch. Sequences start at 0 for each identity and partition."""

    producer_id: int
    producer_epoch: int


class OutgoingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record sent by the application."""

    where: TopicPartition
    key: str
    value: bytes
    timestamp_ms: int


class BatchState(Enum):
    """The state of a closed batch."""

    READY = auto()
    """Waits for its first send or for a retry."""
    IN_FLIGHT = auto()
    """In flight."""
    REFUSED = auto()
    """Certainly not in the log with its identity: waits for a new identity and sequence."""


@dataclass(slots=True, kw_only=True, eq=False)
class OutgoingBatch:
    """The records of one partition that are sent and resolved together. `identity`, `base_sequence`
    and `number` are set at the first send: `number` batches of the partition were sent before.
    """

    where: TopicPartition
    records: list[OutgoingRecord]
    size_bytes: int
    created_ms: int
    state: BatchState = BatchState.READY
    identity: ProducerIdentity | None = None
    base_sequence: int = -1
    number: int = -1
    attempts: int = 0
    not_before_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Kafka's producer settings, by their names."""

    linger_ms: int = 5
    batch_size_bytes: int = 16384
    max_request_size_bytes: int = 1_048_576
    max_in_flight_requests_per_connection: int = 5
    retry_backoff_ms: int = 100
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    buffered_records_max: int = 10_000
    """kraftsim only: the maximum number of buffered records before `send` waits."""
    first_sequence: int = 0
    """kraftsim only: the first sequence of the first producer id in each partition; near 2^31 it
    wraps within a run.
    """


# Inputs
# --------------------------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True):
    """The client starts: it needs a producer id."""


class RecordGiven(msgspec.Struct, frozen=True):
    """The application sends a record."""

    record: OutgoingRecord


class FlushAsked(msgspec.Struct, frozen=True):
    """Flush: everything sent so far is not to linger."""


class TimePassed(msgspec.Struct, frozen=True):
    """A time returned by `wake_at_ms` has come."""


class MetadataArrived(msgspec.Struct, frozen=True):
    """The partition leaders of every requested topic. Partitions not listed have no leader."""

    leaders: Mapping[TopicPartition, int]


class MetadataLost(msgspec.Struct, frozen=True):
    """No response to the Metadata request."""


class ProducerIdArrived(msgspec.Struct, frozen=True):
    """The InitProducerId response, without error."""

    producer_id: int
    producer_epoch: int


class ProducerIdLost(msgspec.Struct, frozen=True):
    """InitProducerId failed with an error; `None`: no response."""

    error_code: ErrorCode | None


class PartitionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The partition response of Produce."""

    where: TopicPartition
    error_code: ErrorCode
    base_offset: int


class ProduceAnswered(msgspec.Struct, frozen=True):
    """The Produce response; missing partitions count as lost."""

    request_id: int
    answers: tuple[PartitionAnswer, ...]


class ProduceLost(msgspec.Struct, frozen=True):
    """No response to a Produce request: disconnected or timed out.

    Whether it was appended is unknown.
    """

    request_id: int


class WindowAnnounced(msgspec.Struct, frozen=True):
    """The Produce response of a broker has announced the sequence window (KIP-758); None: it has
    none.
    """

    broker_id: int
    sequences: int | None


ProducerInput = (
    Started
    | RecordGiven
    | FlushAsked
    | TimePassed
    | MetadataArrived
    | MetadataLost
    | ProducerIdArrived
    | ProducerIdLost
    | ProduceAnswered
    | ProduceLost
    | WindowAnnounced
)


# Effects
# --------------------------------------------------------------------------------------------------


class SendInitProducerId(msgspec.Struct, frozen=True):
    """Send InitProducerId to any broker; the response is ProducerIdArrived or ProducerIdLost."""


class SendMetadataRequest(msgspec.Struct, frozen=True):
    """Send Metadata for these topics to any broker; the response is MetadataArrived or
    MetadataLost.
    """

    topics: tuple[str, ...]


class SendProduce(msgspec.Struct, frozen=True, kw_only=True):
    """Send these batches (at most one per partition) to a broker; the response is ProduceAnswered
    or ProduceLost.
    """

    request_id: int
    broker_id: int
    batches: tuple[OutgoingBatch, ...]


class IdentityTaken(msgspec.Struct, frozen=True):
    """The producer has a new producer id or epoch."""

    identity: ProducerIdentity


class RecordDelivered(msgspec.Struct, frozen=True, kw_only=True):
    """A record is in the log. NO_OFFSET: the broker did not return the offset.

    `duplicate_of` and `base_sequence` are those of its batch if the response was
    DUPLICATE_SEQUENCE_NUMBER.
    """

    record: OutgoingRecord
    offset: int
    duplicate_of: ProducerIdentity | None = None
    base_sequence: int = -1


class RecordGivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """A record has failed and will not be retried; it may or may not be in the log."""

    record: OutgoingRecord
    error_code: ErrorCode
    reason: str


ProducerEffect = (
    SendInitProducerId
    | SendMetadataRequest
    | SendProduce
    | IdentityTaken
    | RecordDelivered
    | RecordGivenUp
)


# --------------------------------------------------------------------------------------------------
# The unacknowledged records of one partition, in order, with their sequences
#
# Three rules give exactly-once delivery. A batch keeps its sequence while its result is unknown. A
# batch is retried only when all earlier ones are resolved. A batch gets a new identity only once it
# is certain that it is not in the log.

RECORD_OVERHEAD_BYTES = 21
"""Kafka's upper bound of the record overhead: lengths and deltas around key and value."""
BATCH_HEADER_BYTES = 61
REMEMBERED_BATCHES = 5
"""The number of batches in the broker's duplicate detection: an unresolved batch must be among the
last that many when it is retried.
"""


class PartitionQueue:
    """The queue of one partition.

    `batches` are closed and in order of their sequences; `gathering` is still open.
    """

    def __init__(self, where: TopicPartition, first_sequence: int = 0) -> None:
        self.where = where
        self.batches: deque[OutgoingBatch] = deque()
        self.gathering: OutgoingBatch | None = None
        self.identity: ProducerIdentity | None = None
        self.next_sequence = 0
        self._first_sequence = first_sequence
        self._sent_count = 0
        self.has_lost_sequence = False
        """A used sequence is missing in the log for good: the identity cannot continue in this
        partition.
        """

    def add(self, record: OutgoingRecord, batch_size_bytes: int, now_ms: int) -> bool:
        """Add a record to the open batch; a batch that would exceed batch_size_bytes is closed
        first.

        Returns whether one was closed.
        """
        size_bytes = len(record.key) + len(record.value) + RECORD_OVERHEAD_BYTES
        has_closed = (
            self.gathering is not None and self.gathering.size_bytes + size_bytes > batch_size_bytes
        )
        if has_closed:
            self.close_open_batch()
        if self.gathering is None:
            self.gathering = OutgoingBatch(
                where=self.where, records=[], size_bytes=BATCH_HEADER_BYTES, created_ms=now_ms
            )
        self.gathering.records.append(record)
        self.gathering.size_bytes += size_bytes
        return has_closed

    def close_open_batch(self) -> None:
        """Close the batch being gathered."""
        if self.gathering is not None:
            self.batches.append(self.gathering)
            self.gathering = None

    def sendable(self, identity: ProducerIdentity, now_ms: int) -> OutgoingBatch | None:
        """Return the batch that may be sent now with the producer's identity, or None.

        A retry may be sent only if it is the first unresolved batch. A new batch only if everything
        before it is in flight, so that sequences reach the broker in order, and no batch of an
        older identity is unresolved.
        """
        for batch in self.batches:
            if batch.state is BatchState.READY:
                may_go = (
                    self.is_first_open(batch)
                    if batch.attempts
                    else self._may_begin(identity, batch)
                )
                return batch if may_go and batch.not_before_ms <= now_ms else None
        return None

    def _may_begin(self, identity: ProducerIdentity, batch: OutgoingBatch) -> bool:
        is_continued = self.identity == identity or not any(True for _ in self.sent_batches())
        return is_continued and not self.has_lost_sequence and self.has_room_for(batch)

    def has_room_for(self, batch: OutgoingBatch) -> bool:
        """Return whether a batch may join the unresolved ones.

        Batches acknowledged after the first unresolved one count as well: while that one is sent to
        a stale leader, the new leader appends later ones, and must still retain the first one when
        it is retried. Apache Kafka's producer counts the requests of a connection only.
        """
        first = next(self.sent_batches(), None)
        return first is None or self._sent_count - first.number < REMEMBERED_BATCHES

    def sent_batches(self) -> Iterator[OutgoingBatch]:
        """Yield the batches that were sent at least once: they are before all others."""
        return takewhile(lambda batch: batch.attempts > 0, self.batches)

    def send(self, batch: OutgoingBatch, identity: ProducerIdentity) -> None:
        """Mark a batch as in flight; a new one gets the next sequence.

        A newer identity is adopted only when nothing is unresolved.
        """
        assert batch.state is BatchState.READY, "only a waiting batch is sent"
        if batch.identity is None:
            if self.identity != identity:
                assert not any(self.sent_batches()), (
                    "a new identity starts without an unresolved batch of the old one"
                )
                self.identity, self.next_sequence = identity, self._first_sequence
                self._first_sequence = 0
            batch.identity = identity
            batch.base_sequence = self.next_sequence
            self.next_sequence = increment_sequence(self.next_sequence, len(batch.records))
        if not batch.attempts:
            batch.number = self._sent_count
            self._sent_count += 1
        batch.state = BatchState.IN_FLIGHT
        batch.attempts += 1

    def sequences_under_way(self) -> int:
        """Return the number of sequences used since the first unresolved batch."""
        first = next(self.sent_batches(), None)
        return 0 if first is None else sequences_between(first.base_sequence, self.next_sequence)

    def is_first_open(self, batch: OutgoingBatch) -> bool:
        """Return whether everything before a batch is resolved."""
        for each in self.batches:
            if each is batch:
                return True
            if each.state is not BatchState.REFUSED:
                return False
        raise AssertionError("unknown batch")

    def retry(self, batch: OutgoingBatch, not_before_ms: int) -> None:
        """Retry: the result is unknown, or the error is retriable.

        The same bytes are sent again.
        """
        batch.state = BatchState.READY
        batch.not_before_ms = not_before_ms

    def refuse(self, batch: OutgoingBatch) -> None:
        """The broker's log does not have the batch and cannot append it with this sequence."""
        batch.state = BatchState.REFUSED
        self.has_lost_sequence = True

    def remove(self, batch: OutgoingBatch, *, sequence_is_used: bool) -> None:
        """The batch is resolved.

        If its sequence may be missing in the log, the identity cannot continue in this partition.
        """
        self.batches.remove(batch)
        if batch.identity is not None and not sequence_is_used:
            self.has_lost_sequence = True

    def needs_new_identity(self) -> bool:
        """Return whether the partition waits for a new identity: a sequence is lost and no batch is
        unresolved.
        """
        return self.has_lost_sequence and not any(
            batch.state is not BatchState.REFUSED for batch in self.sent_batches()
        )

    def restart_sequences(self) -> None:
        """Reset the sequences of the refused batches: they are renumbered from 0 with the next
        identity.
        """
        assert self.needs_new_identity(), "no batch may be renumbered while it may be in the log"
        for batch in self.batches:
            batch.state = BatchState.READY
            batch.identity = None
            batch.base_sequence = -1
            batch.attempts = 0
            batch.not_before_ms = 0
        self.identity = None
        self.next_sequence = 0
        self.has_lost_sequence = False

    def is_younger_than(self, created_before_ms: int) -> bool:
        """Return whether no batch, waiting, in flight or gathering, was created before a time."""
        oldest = self.batches[0] if self.batches else self.gathering
        return oldest is None or oldest.created_ms >= created_before_ms

    def overdue(self, created_before_ms: int) -> list[OutgoingBatch]:
        """Return the batches that have exceeded their delivery timeout and are not in flight."""
        if self.gathering is not None and self.gathering.created_ms < created_before_ms:
            self.close_open_batch()
        old = takewhile(lambda batch: batch.created_ms < created_before_ms, self.batches)
        return [batch for batch in old if batch.state is not BatchState.IN_FLIGHT]
