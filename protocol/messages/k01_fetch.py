"""Fetch (1): read batches from partitions; used by consumers, by followers to replicate, and by
KRaft to replicate the metadata log.

The response contains whole batches as in the log, at least one if there is any; a consumer skips
the records before its fetch offset.
Source: KIP-13 (v1: throttling), KIP-32 (v2: timestamps), KIP-74 (v3: a limit for all partitions),
KIP-98 (v4), KIP-107 (v5), KIP-227 (v7: sessions), KIP-110 (v10: zstd), KIP-392 (v11: nearest
replica), KIP-595 (v12: diverging epochs), KIP-516 (v13: topic ids), KIP-405 (v14), KIP-903 (v15:
replica epoch), KIP-951 (v16: who leads now), KIP-853 (v17), KIP-1166 (v18); FetchRequest.json,
FetchResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import (
    array,
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

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
NO_SESSION_ID = 0
FINAL_SESSION_EPOCH = -1  # full fetch, and no session afterwards
FIRST_SESSION_EPOCH = 0  # full fetch, and please open a session
UNKNOWN_HIGH_WATERMARK = 2**63 - 1

ERRORS = (
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.BROKER_NOT_AVAILABLE,  # a controller that shuts down
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
)


@structure
class ReplicaState:
    """A follower that fetches; its broker epoch keeps a restarted broker's old requests out of the
    in-sync replicas.
    """

    replica_id: int = int32(since=15, default=CONSUMER_REPLICA_ID)
    replica_epoch: int = int64(since=15, default=-1)


@structure
class FetchPartition:
    """The fetch position. Epochs are -1 if unknown; log_start_offset is the follower's own."""

    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid(tag=0, tagged="17+", ignorable=True)
    high_watermark: int = int64(tag=1, tagged="18+", default=UNKNOWN_HIGH_WATERMARK, ignorable=True)


@structure
class FetchTopic:
    """Partitions of one topic, identified by its name up to v12 and by its id since v13."""

    topic: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


@structure
class ForgottenTopic:
    """Partitions to remove from the session."""

    topic: str = string(since=7, until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[int] = array(int32, since=7)


@message(key=1, versions="0-18", flexible="12+")
class FetchRequest:
    """Without a session every partition is listed; within one only those that are new or have
    changed.

    The version also determines the message format: 0 up to v1, 1 up to v3. v3 limits the whole
    response, which is filled in the order of the partitions; v4 adds isolation levels, v7 sessions,
    v9 leader epochs, v12 the last fetched epoch (so that the response contains where to truncate a
    diverging log), v13 topic ids. The replica id is a field of its own up to v14, then part of the
    replica state. A KRaft voter fills in the cluster id.
    """

    cluster_id: str | None = string(
        tag=0, tagged="12+", nullable="12+", default=None, ignorable=True
    )
    replica_id: int = int32(until=14, default=CONSUMER_REPLICA_ID)
    replica_state: ReplicaState = struct(ReplicaState, tag=1, tagged="15+")
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(since=3, default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8(since=4, ignorable=True)
    session_id: int = int32(since=7, ignorable=True)
    session_epoch: int = int32(since=7, default=FINAL_SESSION_EPOCH, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11, ignorable=True)


@structure
class EpochEndOffset:
    """The newest epoch that both logs can share, and its end offset (exclusive) in the leader's
    log.
    """

    epoch: int = int32(since=12, default=-1)
    end_offset: int = int64(since=12, default=-1)


@structure
class LeaderIdAndEpoch:
    """The leader as far as this node knows."""

    leader_id: int = int32(since=12, default=-1)
    leader_epoch: int = int32(since=12, default=-1)


@structure
class SnapshotId:
    """The snapshot to fetch instead, because the log start offset is higher than the fetch offset
    (metadata log only).
    """

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@structure
class AbortedTransaction:
    """An aborted transaction: its producer's records are to be skipped from first_offset on, until
    its marker.
    """

    producer_id: int = int64(since=4)
    first_offset: int = int64(since=4)


@structure
class PartitionData:
    """The fetched data. aborted_transactions is null unless read_committed; with an error all
    offsets are -1.
    """

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(since=4, default=-1, ignorable=True)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, tag=0, tagged="12+")
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tag=1, tagged="12+")
    snapshot_id: SnapshotId = struct(SnapshotId, tag=2, tagged="12+")
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, since=4, nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32(since=11, default=-1)
    records: bytes | memoryview | None = records(nullable="0+")


@structure
class FetchableTopicResponse:
    """Partitions of one topic."""

    topic: str = string(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


@structure
class NodeEndpoint:
    """An endpoint of a leader named above."""

    node_id: int = int32(since=16)
    host: str = string(since=16)
    port: int = int32(since=16)
    rack: str | None = string(since=16, nullable="16+", default=None)


@message(key=1, versions="0-18", flexible="12+")
class FetchResponse:
    """Since v7 with a top-level error and the session; within a session only changed partitions.

    The diverging epoch, the current leader and the snapshot of a partition are tagged fields since
    v12.
    """

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(since=7, ignorable=True)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, tag=0, tagged="16+")
