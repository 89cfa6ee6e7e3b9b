"""What goes into the rules of a producer and what comes out: its records, batches, inputs and effects.

Kept apart from the rules so that the shell that carries them out and the tests name the same things.
Source: org.apache.kafka.clients.producer.internals.{ProducerBatch, Sender}.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from protocol.errors import ErrorCode

NO_OFFSET = -1
MAX_PRODUCER_EPOCH = 32767
"""After this epoch a producer needs a new id (int16)."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class Identity(NamedTuple):
    """Under which name sequences are counted. Sequences start at 0 in each identity and partition."""

    producer_id: int
    producer_epoch: int


class OutgoingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record that the application handed over."""

    where: TopicPartition
    key: str
    value: bytes
    timestamp_ms: int


class BatchState(Enum):
    """Where a batch is between its closing and its end."""

    READY = auto()
    """Waits to be sent, or to be sent again."""
    IN_FLIGHT = auto()
    """Sent; the answer is outstanding."""
    REFUSED = auto()
    """Certainly not in the log under its identity: waits for a new identity and a new sequence."""


@dataclass(slots=True, kw_only=True, eq=False)
class OutgoingBatch:
    """Records of one partition that are sent, acknowledged and refused together. `identity`, `base_sequence` and `number` are set at the first send:
    that many batches of the partition were sent before.
    """

    where: TopicPartition
    records: list[OutgoingRecord]
    size_bytes: int
    created_ms: int
    state: BatchState = BatchState.READY
    identity: Identity | None = None
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
    """Ours: how many records may be under way before `send` waits."""
    first_sequence: int = 0
    """Ours: with which sequence the first producer id begins in each partition; near 2^31 it wraps before the day is over."""


# Inputs -----------------------------------------------------------------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True):
    """The client begins: it needs a producer id."""


class RecordGiven(msgspec.Struct, frozen=True):
    """The application sends a record."""

    record: OutgoingRecord


class FlushAsked(msgspec.Struct, frozen=True):
    """Everything handed over so far is to go out without lingering."""


class TimePassed(msgspec.Struct, frozen=True):
    """A moment that `wake_at_ms` named has come."""


class MetadataArrived(msgspec.Struct, frozen=True):
    """Who leads what, in every topic that was asked for. Partitions that are not named have no leader."""

    leaders: Mapping[TopicPartition, int]


class MetadataLost(msgspec.Struct, frozen=True):
    """Nobody answered the question for metadata."""


class ProducerIdArrived(msgspec.Struct, frozen=True):
    """InitProducerId was answered without error."""

    producer_id: int
    producer_epoch: int


class ProducerIdLost(msgspec.Struct, frozen=True):
    """InitProducerId came back with an error; `None`: with no answer at all."""

    error_code: ErrorCode | None


class PartitionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What Produce said about one partition."""

    where: TopicPartition
    error_code: ErrorCode
    base_offset: int


class ProduceAnswered(msgspec.Struct, frozen=True):
    """A Produce request was answered; partitions that are missing count as lost."""

    request_id: int
    answers: tuple[PartitionAnswer, ...]


class ProduceLost(msgspec.Struct, frozen=True):
    """No answer to a Produce request: disconnected or timed out. Whether it was carried out is unknown."""

    request_id: int


class WindowAnnounced(msgspec.Struct, frozen=True):
    """A broker has answered Produce, and announced how many sequence numbers may be under way (KIP-758); None: it has announced nothing."""

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


# Effects ----------------------------------------------------------------------------------------------------------------------------------------


class AskProducerId(msgspec.Struct, frozen=True):
    """Send InitProducerId to any broker; answer with ProducerIdArrived or ProducerIdLost."""


class AskMetadata(msgspec.Struct, frozen=True):
    """Ask any broker who leads the partitions of these topics; answer with MetadataArrived or MetadataLost."""

    topics: tuple[str, ...]


class SendProduce(msgspec.Struct, frozen=True, kw_only=True):
    """Send these batches (at most one a partition) to a broker; answer with ProduceAnswered or ProduceLost."""

    request_id: int
    broker_id: int
    batches: tuple[OutgoingBatch, ...]


class IdentityTaken(msgspec.Struct, frozen=True):
    """The producer goes on under another producer id or epoch."""

    identity: Identity


class RecordDelivered(msgspec.Struct, frozen=True, kw_only=True):
    """A record is in the log. NO_OFFSET: the broker did not say where.

    `duplicate_of` and `base_sequence` are those of its batch where the answer was DUPLICATE_SEQUENCE_NUMBER.
    """

    record: OutgoingRecord
    offset: int
    duplicate_of: Identity | None = None
    base_sequence: int = -1


class RecordGivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """A record will not be sent again; it may or may not be in the log."""

    record: OutgoingRecord
    error_code: ErrorCode
    reason: str


ProducerEffect = AskProducerId | AskMetadata | SendProduce | IdentityTaken | RecordDelivered | RecordGivenUp
