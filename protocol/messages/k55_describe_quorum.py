"""DescribeQuorum (55): the leader of the metadata log, and how far each controller and broker has
fetched it.

Only the leader answers: other controllers reject it, a broker forwards it to the leader.
Source: KIP-595, KIP-836 (v1: times), KIP-853 (v2: directories, nodes); DescribeQuorumRequest.json,
DescribeQuorumResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, int64, message, string, structure, uint16, uuid

UNKNOWN_OFFSET = -1
UNKNOWN_TIMESTAMP = -1

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # for the partition, without the leader
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)


@structure(kafka_name="PartitionData")
class DescribeQuorumPartition:
    """A partition; 0 is the only one."""

    partition_index: int = int32()


@structure(kafka_name="TopicData")
class DescribeQuorumTopic:
    """A topic; only __cluster_metadata has a quorum."""

    topic_name: str = string()
    partitions: list[DescribeQuorumPartition] = array(DescribeQuorumPartition)


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    """The same in all versions; the responses differ."""

    topics: list[DescribeQuorumTopic] = array(DescribeQuorumTopic)


@structure
class ReplicaState:
    """How far a replica has fetched, as the leader saw it.

    log_end_offset is the offset it fetches next, -1 before its first fetch. v1 adds times of the
    leader's clock in ms (-1: never): of the last fetch, and of when it last had everything; for the
    leader itself both are now. v2 adds the directory id, zeros where the voter set is a fixed one.
    """

    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(since=1, default=UNKNOWN_TIMESTAMP, ignorable=True)
    last_caught_up_timestamp: int = int64(since=1, default=UNKNOWN_TIMESTAMP, ignorable=True)


@structure(kafka_name="PartitionData")
class DescribeQuorumPartitionResult:
    """The quorum.

    The high watermark is the end of what a majority has. Observers are brokers, and controllers
    that do not vote.

    With an error all fields are zero or empty. v2 adds a message.
    """

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@structure(kafka_name="TopicData")
class DescribeQuorumTopicResult:
    """A requested topic."""

    topic_name: str = string()
    partitions: list[DescribeQuorumPartitionResult] = array(DescribeQuorumPartitionResult)


@structure
class Listener:
    """An endpoint of a voter."""

    name: str = string(since=2)
    host: str = string(since=2)
    port: int = uint16(since=2)


@structure(kafka_name="Node")
class DescribeQuorumNode:
    """A voter and its listeners."""

    node_id: int = int32(since=2)
    listeners: list[Listener] = array(Listener, since=2)


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    """v2 adds messages, which are empty (not null) without an error, and the nodes of the
    voters.
    """

    error_code: int = int16()
    error_message: str | None = string(since=2, nullable="2+", ignorable=True)
    topics: list[DescribeQuorumTopicResult] = array(DescribeQuorumTopicResult)
    nodes: list[DescribeQuorumNode] = array(DescribeQuorumNode, since=2)
