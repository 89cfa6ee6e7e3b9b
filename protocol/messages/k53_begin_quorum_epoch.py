"""BeginQuorumEpoch (53): a newly elected leader of the metadata log announces its epoch to the
other voters.

Voters that did not take part in the election learn the leader to fetch from. The leader repeats it:
up to 3.8 until a voter has responded, in 3.9 for as long as it leads, in 4.x while a voter does not
fetch.
Source: KIP-595, KIP-853 (v1: directory ids, endpoints); BeginQuorumEpochRequest.json,
BeginQuorumEpochResponse.json; KafkaRaftClient.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, structure, uint16, uuid

ANY_VOTER = -1  # the leader does not name the intended voter
NO_LEADER = -1

ERRORS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,  # another partition, or a negative leader
    ErrorCode.FENCED_LEADER_EPOCH,  # the receiver is in a later epoch
    ErrorCode.INCONSISTENT_VOTER_SET,  # leader or receiver is no voter, up to 3.7
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    # v1: meant for another node or disk; the receiver follows the leader nevertheless
    ErrorCode.INVALID_VOTER_KEY,
)


@structure(kafka_name="PartitionData")
class BeginQuorumPartition:
    """The leader and its epoch. v1 adds the directory id of the receiver; one of zeros is not
    compared.
    """

    partition_index: int = int32()
    voter_directory_id: bytes = uuid(since=1, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()


@structure(kafka_name="TopicData")
class BeginQuorumTopic:
    """Always partition 0 of __cluster_metadata."""

    topic_name: str = string()
    partitions: list[BeginQuorumPartition] = array(BeginQuorumPartition)


@structure
class LeaderEndpoint:
    """An endpoint of the leader for other controllers, by listener name."""

    name: str = string(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


@message(key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochRequest:
    """The receiver becomes a follower of this leader.

    One epoch cannot have two leaders: a node that learns of a second one exits.

    A null cluster id is not checked. v1 is flexible and adds the leader's endpoints, which a
    receiver may not know otherwise.
    """

    cluster_id: str | None = string(nullable="0+", default=None)
    voter_id: int = int32(since=1, default=ANY_VOTER, ignorable=True)
    topics: list[BeginQuorumTopic] = array(BeginQuorumTopic)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, since=1, ignorable=True)


@structure(kafka_name="PartitionData")
class BeginQuorumPartitionResult:
    """The receiver's epoch and leader (-1: unknown), also with an error."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


@structure(kafka_name="TopicData")
class BeginQuorumTopicResult:
    """Always partition 0 of __cluster_metadata; no topics with a top-level error."""

    topic_name: str = string()
    partitions: list[BeginQuorumPartitionResult] = array(BeginQuorumPartitionResult)


@structure
class NodeEndpoint:
    """An endpoint of the leader named above, for the listener of the request."""

    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


@message(key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochResponse:
    """No error means acknowledged. v1 adds the leader's endpoint, empty if no leader is known."""

    error_code: int = int16()
    topics: list[BeginQuorumTopicResult] = array(BeginQuorumTopicResult)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, tag=0, tagged="1+")
