"""Produce (0): append record batches to partitions, one batch each.

A batch either is appended whole, is recognised as a duplicate, or is rejected; the response
contains the result of each partition. With acks=0 no response is sent at all, and an error closes
the connection.
Source: KIP-13 (v1: throttling), KIP-32 (v2: timestamps), KIP-98 (v3), KIP-112 (v4), KIP-110 (v7:
zstd), KIP-467 (v8: which records), KIP-951 (v10: who leads now), KIP-890 (v11, v12), KIP-516 (v13);
ProduceRequest.json, ProduceResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import (
    array,
    int16,
    int32,
    int64,
    message,
    records,
    string,
    struct,
    structure,
    uuid,
)

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0
NO_OFFSET = -1

ERRORS = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,  # the batch is in the log, only not replicated in time
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TRANSACTION_ABORTABLE,
)


@structure
class PartitionProduceData:
    """One batch for one partition; a broker does not answer a request with null records."""

    index: int = int32()
    records: bytes | memoryview | None = records(nullable="0+")


@structure
class TopicProduceData:
    """The batches of one topic, identified by its name up to v12 and by its id since v13."""

    name: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message(key=0, versions="0-13", flexible="9+")
class ProduceRequest:
    """v0 and v1 have message format 0, v2 format 1; since v3 only batches of format 2 are accepted,
    and the transactional id is a field.

    v11 means that the producer understands TRANSACTION_ABORTABLE; since v12 partitions are added to
    the transaction without AddPartitionsToTxn.
    """

    transactional_id: str | None = string(since=3, nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@structure
class BatchIndexAndErrorMessage:
    """A record, by its index in the batch, that made the broker reject the batch."""

    batch_index: int = int32(since=8)
    batch_index_error_message: str | None = string(since=8, nullable="8+", default=None)


@structure
class LeaderIdAndEpoch:
    """The leader of the partition as far as this broker knows; sent with NOT_LEADER_OR_FOLLOWER."""

    leader_id: int = int32(since=10, default=-1)
    leader_epoch: int = int32(since=10, default=-1)


@structure
class PartitionProduceResponse:
    """The result of one batch.

    With an error base_offset is NO_OFFSET; a duplicate returns the base offset of the original
    batch.
    """

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(since=2, default=-1, ignorable=True)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, ignorable=True
    )
    error_message: str | None = string(since=8, nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tag=0, tagged="10+")


@structure
class TopicProduceResponse:
    """The batches of one topic, in the order of the request."""

    name: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@structure
class NodeEndpoint:
    """An endpoint of a leader named above."""

    node_id: int = int32(since=10)
    host: str = string(since=10)
    port: int = int32(since=10)
    rack: str | None = string(since=10, nullable="10+", default=None)


@message(key=0, versions="0-13", flexible="9+")
class ProduceResponse:
    """v2 adds LogAppendTime (-1 for CreateTime), v5 the log start offset, v8 the rejected records,
    v10 the current leader.
    """

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, tag=0, tagged="10+")
