"""DescribeProducers (61): the producer state of a partition, and open transactions.

Sent to the partition's leader. With ListTransactions (66) and DescribeTransactions (65) it finds
hanging transactions.
Source: KIP-664; DescribeProducersRequest.json, DescribeProducersResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure

NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_OPEN_TRANSACTION = -1

ERRORS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


@structure(kafka_name="TopicRequest")
class DescribeProducersTopic:
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    """Each leader is queried for its partitions."""

    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic)


@structure
class ProducerState:
    """The state of a producer.

    last_timestamp is that of its last batch, in ms; coordinator_epoch that of its last transaction
    marker, -1 before the first. current_txn_start_offset is the first offset of its open
    transaction, -1 if there is none. The epoch is wider here (int32) than anywhere else.
    """

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=NO_SEQUENCE)
    last_timestamp: int = int64(default=NO_TIMESTAMP)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=NO_OPEN_TRANSACTION)


@structure(kafka_name="PartitionResponse")
class DescribeProducersPartitionResult:
    """The producers of one partition, without expired ones."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)


@structure(kafka_name="TopicResponse")
class DescribeProducersTopicResult:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DescribeProducersPartitionResult] = array(DescribeProducersPartitionResult)


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """Only requested partitions."""

    throttle_time_ms: int = int32()
    topics: list[DescribeProducersTopicResult] = array(DescribeProducersTopicResult)
