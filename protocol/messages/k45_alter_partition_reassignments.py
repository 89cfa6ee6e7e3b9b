"""AlterPartitionReassignments (45): begin to move partitions to other brokers, or call a move off.

The controller adds the new replicas, waits until all of them are in sync, and only then takes the old ones away.
Source: KIP-455, KIP-860 (v1: keep the replication factor); AlterPartitionReassignmentsRequest.json, AlterPartitionReassignmentsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REPLICATION_FACTOR,  # v1, where it would change but must not
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,  # nothing to call off
)


@structure
class ReassignablePartition:
    """Where the replicas shall be in the end, the preferred leader first; null calls a move off that is under way."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable="0+", default=None)


@structure
class ReassignableTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """v1 can forbid moves that change the number of replicas; in v0 they are allowed."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@structure
class ReassignablePartitionResponse:
    """Whether the move has begun (or was called off): not that it is done."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@structure
class ReassignableTopicResponse:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """An error of the whole request comes with no topics. v1 repeats what was allowed."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
