"""ShareGroupDescribe (77): the state of share groups and their members, from their coordinator.

For administration tools; read-only.
Source: KIP-932 (v0 in the early access of 4.0 only, v1 from 4.1); ShareGroupDescribeRequest.json,
ShareGroupDescribeResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, message, string, struct, structure, uuid

OPERATIONS_NOT_ASKED_FOR = -(2**31)

ERRORS = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,  # from v1 on
)


@message(key=77, versions="0-1", flexible="0+")
class ShareGroupDescribeRequest:
    """Groups by name; each has its own result."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


@structure
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@structure
class Assignment:
    """The assignment of a member."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@structure
class Member:
    """A member and its current assignment."""

    member_id: str = string()
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    assignment: Assignment = struct(Assignment)


@structure
class DescribedGroup:
    """A group; authorized operations are a bit field, or its lowest value if they were not
    requested.
    """

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


@message(key=77, versions="0-1", flexible="0+")
class ShareGroupDescribeResponse:
    """One entry per requested group."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
