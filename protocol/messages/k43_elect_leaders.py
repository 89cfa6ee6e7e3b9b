"""ElectLeaders (43): make the controller elect leaders now, either the preferred ones or, if none
is in sync, any live one.

v0 was called ElectPreferredLeaders. An unclean election may lose records that were acknowledged.
Source: KIP-183, KIP-460 (v1: unclean elections); ElectLeadersRequest.json,
ElectLeadersResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int8, int16, int32, message, string, structure

PREFERRED = 0  # the first of the assigned replicas, if it is in sync
UNCLEAN = 1  # the first live replica, if no replica is in sync

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.INVALID_TOPIC_EXCEPTION,  # the topic is being deleted, ZooKeeper mode only
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_REQUEST,  # an election of another type
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.ELECTION_NOT_NEEDED,  # never reported when all partitions were asked for
)


@structure
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """Null means all partitions of the cluster. v1 adds the type: v0 is for preferred leaders."""

    election_type: int = int8(since=1)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


@structure
class PartitionResult:
    """Whether the partition has a new leader."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@structure
class ReplicaElectionResult:
    """Partitions of one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """If all partitions were requested, those that needed no election are left out. v1 adds a
    top-level error.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
