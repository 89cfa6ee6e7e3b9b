"""ShareGroupHeartbeat (76): keeps the session of a share group member alive, and returns its
assignment.

Members of a share group read the same partitions concurrently, like workers of a queue; the
coordinator computes the assignment.
Source: KIP-932 (v0 in the early access of 4.0 only, v1 from 4.1); ShareGroupHeartbeatRequest.json,
ShareGroupHeartbeatResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, struct, structure, uuid

JOINING_MEMBER_EPOCH = 0
LEAVING_MEMBER_EPOCH = -1

ERRORS = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,  # from v1 on
)


@message(key=76, versions="0-1", flexible="0+")
class ShareGroupHeartbeatRequest:
    """Join with member epoch 0, leave with -1; fields that did not change since the last heartbeat
    are null.
    """

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)


@structure
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@structure
class Assignment:
    """All partitions of the member."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(key=76, versions="0-1", flexible="0+")
class ShareGroupHeartbeatResponse:
    """The epoch for the next heartbeat; the assignment only if it changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
