"""ShareAcknowledge (79): acknowledge records that a share group member has acquired, without
acquiring new ones.

The next ShareFetch can contain the same; this is for a member that pauses or leaves.
Source: KIP-932 (v0 in the early access of 4.0 only, v1 from 4.1); KIP-1222 (v2: renewal);
ShareAcknowledgeRequest.json, ShareAcknowledgeResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    structure,
    uuid,
)

ERRORS = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_RECORD_STATE,  # the lock of the records is gone
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


@structure
class AcknowledgementBatch:
    """Offsets, both inclusive, and their acknowledgement: one type for all, or one per offset
    (AcknowledgeType of ShareFetch).
    """

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8)


@structure
class AcknowledgePartition:
    """Acknowledgements in one partition."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@structure
class AcknowledgeTopic:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


@message(key=79, versions="0-2", flexible="0+")
class ShareAcknowledgeRequest:
    """Within the session of ShareFetch; its epoch counts both kinds of requests."""

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean(since=2)
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


@structure
class LeaderIdAndEpoch:
    """The current leader of the partition; both -1 if unknown."""

    leader_id: int = int32()
    leader_epoch: int = int32()


@structure
class PartitionData:
    """Whether the acknowledgements of a partition were accepted."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)


@structure
class ShareAcknowledgeTopicResponse:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@structure
class NodeEndpoint:
    """An endpoint of a new leader named above."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@message(key=79, versions="0-2", flexible="0+")
class ShareAcknowledgeResponse:
    """One result per partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32(since=2, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
