"""EndQuorumEpoch (54): a leader of the metadata log that steps down asks the other voters to elect a new one without waiting for a timeout.

It names them in the order of how much of the log they have: the first begins an election at once, the others hold back one after the other.
Source: KIP-595, KIP-853 (v1: directory ids, endpoints); EndQuorumEpochRequest.json, EndQuorumEpochResponse.json; KafkaRaftClient.
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
    """The leader that steps down and its epoch. The best successor comes first; v0 names them by id alone, v1 with their directories."""

    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = array(int32, until=0, ignorable=True)
    preferred_candidates: list[PreferredCandidate] = array(PreferredCandidate, since=1, ignorable=True)


@structure(kafka_name="TopicData")
class EndQuorumTopic:
    """Always the one partition 0 of __cluster_metadata."""

    topic_name: str = string()
    partitions: list[EndQuorumPartition] = array(EndQuorumPartition)


@structure
class LeaderEndpoint:
    """Where the leader can be reached by other controllers, by name of the listener."""

    name: str = string(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


@message(key=54, versions="0-1", flexible="1+")
class EndQuorumEpochRequest:
    """Repeated until the receiver has answered or a new leader is known. Only a follower of this very leader begins or delays an election for it.

    A null cluster id is not checked. v1 is flexible and brings the endpoints of the leader.
    """

    cluster_id: str | None = string(nullable="0+", default=None)
    topics: list[EndQuorumTopic] = array(EndQuorumTopic)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, since=1, ignorable=True)


@structure(kafka_name="PartitionData")
class EndQuorumPartitionResult:
    """The receiver's epoch and who leads it (-1: nobody it knows of), errors included."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


@structure(kafka_name="TopicData")
class EndQuorumTopicResult:
    """Always the one partition 0 of __cluster_metadata; no topics at all where the whole request is refused."""

    topic_name: str = string()
    partitions: list[EndQuorumPartitionResult] = array(EndQuorumPartitionResult)


@structure
class NodeEndpoint:
    """Where the leader named above can be reached, on the listener that was asked."""

    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


@message(key=54, versions="0-1", flexible="1+")
class EndQuorumEpochResponse:
    """No error means: acknowledged. v1 adds the leader's endpoint, empty where no leader is known."""

    error_code: int = int16()
    topics: list[EndQuorumTopicResult] = array(EndQuorumTopicResult)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, tag=0, tagged="1+")
