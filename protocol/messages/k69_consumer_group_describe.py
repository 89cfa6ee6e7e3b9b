"""ConsumerGroupDescribe (69): groups of the consumer protocol, sent to each group's coordinator.

Source: KIP-848, KIP-1099 (v1: types of members); ConsumerGroupDescribeRequest.json,
ConsumerGroupDescribeResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
    structure,
    uuid,
)

OPERATIONS_NOT_ASKED_FOR = -(2**31)
UNKNOWN_MEMBER_TYPE = -1
CLASSIC_MEMBER = 0  # uses the classic protocol while the group is being upgraded
CONSUMER_MEMBER = 1

ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,  # members read topics that the client may not see
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,  # the protocol is not enabled
    ErrorCode.INVALID_REQUEST,
    ErrorCode.GROUP_ID_NOT_FOUND,  # also for groups of another type
)


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    """The same in both versions."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


@structure
class TopicPartitions:
    """Partitions of one topic, by id and name."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@structure
class Assignment:
    """An assignment."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@structure
class Member:
    """A member: its current and its target assignment. v1 adds its protocol."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8(since=1, default=UNKNOWN_MEMBER_TYPE, ignorable=True)


@structure
class DescribedGroup:
    """A group. Its state is Empty, Assigning, Reconciling, Stable or Dead.

    The group epoch counts changes of members and subscriptions, the assignment epoch is the group
    epoch for which the target was computed. Operations are bits by number of the AclOperation.
    """

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=OPERATIONS_NOT_ASKED_FOR)


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """One entry per requested group, each with its own error."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
