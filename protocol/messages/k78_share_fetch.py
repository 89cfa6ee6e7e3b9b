"""ShareFetch (78): acquire records of a share-partition for a limited time, and acknowledge those
acquired before.

Acquired records are locked for this member; those that it neither acknowledges nor renews in time
are delivered to another.
Source: KIP-932 (v0 in the early access of 4.0 only, v1 from 4.1); KIP-1206 and KIP-1222 (v2:
acquire mode, renewal); ShareFetchRequest.json, ShareFetchResponse.json.
"""

from enum import IntEnum

from protocol.errors import ErrorCode
from protocol.schema import (
    array,
    boolean,
    int8,
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

FIRST_SESSION_EPOCH = 0  # open a session
FINAL_SESSION_EPOCH = -1  # close it

ERRORS = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_RECORD_STATE,  # only of an acknowledgement
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


class AcknowledgeType(IntEnum):
    """The acknowledgement of an acquired record."""

    GAP = 0  # there is no such record any more
    ACCEPT = 1
    RELEASE = 2  # another member may have it
    REJECT = 3  # it is not delivered again
    RENEW = 4  # still working on it (v2)


@structure
class AcknowledgementBatch:
    """Offsets, both inclusive, and their acknowledgement: one type for all, or one per offset (see
    AcknowledgeType).
    """

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8)


@structure
class FetchPartition:
    """A partition to read, with acknowledgements of records acquired before."""

    partition_index: int = int32()
    partition_max_bytes: int = int32(until=0)
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@structure
class FetchTopic:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


@structure
class ForgottenTopic:
    """Partitions to remove from the session."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=78, versions="0-2", flexible="0+")
class ShareFetchRequest:
    """A session stores the partitions, so that only changes are sent; the member increments its
    epoch.
    """

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    max_records: int = int32(since=1)
    batch_size: int = int32(since=1)
    share_acquire_mode: int = int8(since=2, ignorable=True)
    is_renew_ack: bool = boolean(since=2)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


@structure
class LeaderIdAndEpoch:
    """The current leader of the partition; both -1 if unknown."""

    leader_id: int = int32()
    leader_epoch: int = int32()


@structure
class AcquiredRecords:
    """Acquired offsets, both inclusive, and their delivery count."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@structure
class PartitionData:
    """The result of one partition, with two errors: of the fetch, and of the acknowledgements."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
    records: bytes | memoryview | None = records(nullable="0")
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


@structure
class ShareFetchableTopicResponse:
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


@message(key=78, versions="0-2", flexible="0+")
class ShareFetchResponse:
    """Batches as in the log, and which of their records are acquired by this member."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32(since=1)
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
