"""FetchSnapshot (59): a replica of the metadata log that is too far behind fetches a snapshot of
it, piece by piece.

A Fetch (1) response contained the snapshot id, because the leader's log start offset is too high
for the replica. It replaces the replica's log.
Source: KIP-630, KIP-853 (v1: directory ids, endpoints); FetchSnapshotRequest.json,
FetchSnapshotResponse.json; KafkaRaftClient.
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
    uint16,
    uuid,
)

NO_REPLICA = -1
NO_LEADER = -1

ERRORS = (
    # 3.9 answers this, with no topics, for every error of a partition
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.BROKER_NOT_AVAILABLE,  # the leader is shutting down
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,  # not exactly one partition
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.SNAPSHOT_NOT_FOUND,  # never was, or has been dropped: begin with another Fetch
    ErrorCode.POSITION_OUT_OF_RANGE,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
)


@structure
class SnapshotId:
    """A snapshot: it contains the state of everything before end_offset (exclusive); epoch is that
    of the last record in it.
    """

    end_offset: int = int64()
    epoch: int = int32()


@structure(kafka_name="PartitionSnapshot")
class FetchPartitionSnapshot:
    """Snapshot id and position. current_leader_epoch is the epoch in which the replica considers
    the receiver the leader.
    """

    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: bytes = uuid(tag=0, tagged="1+", ignorable=True)


@structure(kafka_name="TopicSnapshot")
class FetchTopicSnapshot:
    """Always partition 0 of __cluster_metadata."""

    name: str = string()
    partitions: list[FetchPartitionSnapshot] = array(FetchPartitionSnapshot)


@message(key=59, versions="0-1", flexible="0+")
class FetchSnapshotRequest:
    """Keeps a voter's session alive, as a Fetch does.

    A null cluster id is not checked. v1 adds the directory id of the replica.
    """

    cluster_id: str | None = string(tag=0, tagged="0+", nullable="0+", default=None)
    replica_id: int = int32(default=NO_REPLICA)
    max_bytes: int = int32(default=0x7FFFFFFF)
    topics: list[FetchTopicSnapshot] = array(FetchTopicSnapshot)


@structure
class LeaderIdAndEpoch:
    """The receiver's epoch and leader (-1: unknown)."""

    leader_id: int = int32()
    leader_epoch: int = int32()


@structure
class PartitionSnapshot:
    """The bytes from position on, and the total size; the snapshot is complete when position and
    bytes add up to it.

    The piece may end in the middle of a batch: unaligned_records must be reassembled before they
    are read.
    """

    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = struct(SnapshotId)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tag=0, tagged="0+")
    size: int = int64()
    position: int = int64()
    unaligned_records: bytes | memoryview | None = records()


@structure
class TopicSnapshot:
    """Always partition 0 of __cluster_metadata."""

    name: str = string()
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot)


@structure
class NodeEndpoint:
    """An endpoint of the leader named above."""

    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


@message(key=59, versions="0-1", flexible="0+")
class FetchSnapshotResponse:
    """v1 adds the leader's endpoint, empty if no leader is known."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    topics: list[TopicSnapshot] = array(TopicSnapshot)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, tag=0, tagged="1+")
