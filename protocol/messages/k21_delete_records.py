"""DeleteRecords (21): delete the records before an offset, on all replicas.

The log start offset advances, and segments wholly before it are deleted eventually.
Source: KIP-107; DeleteRecordsRequest.json, DeleteRecordsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure

HIGH_WATERMARK = -1  # in place of an offset: everything that is committed
UNKNOWN_LOW_WATERMARK = -1

ERRORS = (
    ErrorCode.OFFSET_OUT_OF_RANGE,  # beyond the high watermark
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,  # the leader has moved; some replica has not yet
    ErrorCode.INVALID_TOPIC_EXCEPTION,  # an internal topic
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.POLICY_VIOLATION,  # `cleanup.policy` does not say delete
    ErrorCode.KAFKA_STORAGE_ERROR,
)


@structure
class DeleteRecordsPartition:
    """offset is the first one to keep, or HIGH_WATERMARK."""

    partition_index: int = int32()
    offset: int = int64()


@structure
class DeleteRecordsTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """Goes to each partition's leader, which waits up to timeout_ms for its followers."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@structure
class DeleteRecordsPartitionResult:
    """low_watermark is the smallest log start offset of all live replicas."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@structure
class DeleteRecordsTopicResult:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """One result per partition."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
