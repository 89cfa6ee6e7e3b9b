"""The records, batches, inputs and effects of a producer's state machine.

Separate from the rules, as the I/O code and the tests share them.
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
"""The last epoch of a producer id (int16)."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class Identity(NamedTuple):
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

    identity: Identity


class RecordDelivered(msgspec.Struct, frozen=True, kw_only=True):
    """A record is in the log. NO_OFFSET: the broker did not return the offset.

    `duplicate_of` and `base_sequence` are those of its batch if the response was
    DUPLICATE_SEQUENCE_NUMBER.
    """

    record: OutgoingRecord
    offset: int
    duplicate_of: Identity | None = None
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
