"""AlterPartitionReassignments (45): start to move partitions to other brokers, or cancel a
reassignment.

The controller adds the new replicas, waits until all of them are in sync, and only then removes the
old ones.
Source: KIP-455, KIP-860 (v1: keep the replication factor); AlterPartitionReassignmentsRequest.json,
AlterPartitionReassignmentsResponse.json.
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
    """The target replicas, the preferred leader first; null cancels a reassignment in progress."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable="0+", default=None)


@structure
class ReassignableTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """v1 can forbid changes of the replication factor; v0 allows them."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@structure
class ReassignablePartitionResponse:
    """Whether the reassignment has started (or was cancelled): not that it is complete."""

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
    """With a top-level error there are no topics. v1 echoes allow_replication_factor_change."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
