"""ListOffsets (2): start and end offsets of a partition, and offsets by timestamp.

Negative timestamps stand for positions. A timestamp that is not found is no error: offset and
timestamp are -1.
Source: KIP-79 (v1), KIP-98 (v2), KIP-320 (v4), KIP-734 (v7: largest timestamp), KIP-405 (v8:
earliest local), KIP-1005 (v9: latest tiered), KIP-1075 (v10: time-out), KIP-1023 (v11);
ListOffsetsRequest.json, ListOffsetsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int8, int16, int32, int64, message, string, structure

LATEST_TIMESTAMP = (
    -1
)  # the high watermark; the last stable offset when committed records are asked for
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
UNKNOWN_OFFSET = -1
UNKNOWN_TIMESTAMP = -1
CONSUMER_REPLICA_ID = -1

ERRORS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)


@structure
class ListOffsetsPartition:
    """The request for one partition; v0 could request several offsets."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1, ignorable=True)
    timestamp: int = int64()
    max_num_offsets: int = int32(until=0, default=1)


@structure
class ListOffsetsTopic:
    """The requests for one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsRequest:
    """v2 adds the isolation level, v4 leader epochs, v10 the time-out for a remote storage
    lookup.
    """

    replica_id: int = int32()
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10, ignorable=True)


@structure
class ListOffsetsPartitionResponse:
    """The result: a list in v0, one offset with its timestamp and leader epoch since v1."""

    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array(int64, until=0)
    timestamp: int = int64(since=1, default=UNKNOWN_TIMESTAMP)
    offset: int = int64(since=1, default=UNKNOWN_OFFSET)
    leader_epoch: int = int32(since=4, default=-1)


@structure
class ListOffsetsTopicResponse:
    """The results of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message(key=2, versions="0-11", flexible="6+")
class ListOffsetsResponse:
    """v1 returns one offset, v4 also its leader epoch."""

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
