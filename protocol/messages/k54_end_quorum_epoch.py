"""EndQuorumEpoch (54): a resigning leader of the metadata log asks the other voters to elect a new
one without waiting for a timeout.

It lists them in the order of their log end offsets: the first starts an election at once, the
others back off increasingly.
Source: KIP-595, KIP-853 (v1: directory ids, endpoints); EndQuorumEpochRequest.json,
EndQuorumEpochResponse.json; KafkaRaftClient.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, structure, uint16, uuid

NO_LEADER = -1

ERRORS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,  # another partition, or a negative leader
    ErrorCode.FENCED_LEADER_EPOCH,  # the receiver is in a later epoch already
    ErrorCode.INCONSISTENT_VOTER_SET,  # leader or receiver is no voter, up to 3.7
    ErrorCode.INCONSISTENT_CLUSTER_ID,
)


@structure(kafka_name="ReplicaInfo")
class PreferredCandidate:
    """A voter, by id and by the directory that holds its log."""

    candidate_id: int = int32(since=1)
    candidate_directory_id: bytes = uuid(since=1)


@structure(kafka_name="PartitionData")
class EndQuorumPartition:
    """The resigning leader and its epoch.

    The best successor is the first; v0 lists them by id alone, v1 with their directories.
    """

    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = array(int32, until=0, ignorable=True)
    preferred_candidates: list[PreferredCandidate] = array(
        PreferredCandidate, since=1, ignorable=True
    )


@structure(kafka_name="TopicData")
class EndQuorumTopic:
    """Always partition 0 of __cluster_metadata."""

    topic_name: str = string()
    partitions: list[EndQuorumPartition] = array(EndQuorumPartition)


@structure
class LeaderEndpoint:
    """An endpoint of the leader for other controllers, by listener name."""

    name: str = string(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


@message(key=54, versions="0-1", flexible="1+")
class EndQuorumEpochRequest:
    """Repeated until the receiver has responded or a new leader is known.

    Only a follower of this very leader starts or delays an election for it.

    A null cluster id is not checked. v1 is flexible and adds the endpoints of the leader.
    """

    cluster_id: str | None = string(nullable="0+", default=None)
    topics: list[EndQuorumTopic] = array(EndQuorumTopic)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, since=1, ignorable=True)


@structure(kafka_name="PartitionData")
class EndQuorumPartitionResult:
    """The receiver's epoch and leader (-1: unknown), also with an error."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


@structure(kafka_name="TopicData")
class EndQuorumTopicResult:
    """Always partition 0 of __cluster_metadata; no topics with a top-level error."""

    topic_name: str = string()
    partitions: list[EndQuorumPartitionResult] = array(EndQuorumPartitionResult)


@structure
class NodeEndpoint:
    """An endpoint of the leader named above, for the listener of the request."""

    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


@message(key=54, versions="0-1", flexible="1+")
class EndQuorumEpochResponse:
    """No error means acknowledged. v1 adds the leader's endpoint, empty if no leader is known."""

    error_code: int = int16()
    topics: list[EndQuorumTopicResult] = array(EndQuorumTopicResult)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, tag=0, tagged="1+")
