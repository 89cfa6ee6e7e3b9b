"""ListPartitionReassignments (46): the reassignments in progress.

Source: KIP-455; ListPartitionReassignmentsRequest.json, ListPartitionReassignmentsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,
)


@structure
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Null means all topics; partitions that do not exist are skipped."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


@structure
class OngoingPartitionReassignment:
    """A partition with a reassignment in progress: all current replicas, the adding and the
    removing ones.
    """

    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


@structure
class OngoingTopicReassignment:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """Only partitions with a reassignment in progress."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
