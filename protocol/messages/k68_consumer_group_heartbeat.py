"""ConsumerGroupHeartbeat (68): the single request with which a consumer joins, stays in and leaves
a group of the consumer protocol.

The coordinator computes the assignment and reconciles each member step by step: a revoked partition
is assigned to others only after the member has acknowledged the revocation. Fields that have not
changed since the last heartbeat are left out (null, -1).
Source: KIP-848 (v1: regular expressions), KIP-1082 (v1: client-generated member ids);
ConsumerGroupHeartbeatRequest.json, ConsumerGroupHeartbeatResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, struct, structure, uuid

JOIN_GROUP_EPOCH = 0
LEAVE_GROUP_EPOCH = -1
LEAVE_GROUP_STATIC_EPOCH = -2  # keep the place for the next member with the same instance id
UNCHANGED_TIMEOUT = -1

ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,  # the protocol is not enabled
    ErrorCode.INVALID_REQUEST,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,  # the member must give everything up and join again
    ErrorCode.UNRELEASED_INSTANCE_ID,  # another member with this instance id has not left
    ErrorCode.UNSUPPORTED_ASSIGNOR,
    ErrorCode.INVALID_REGULAR_EXPRESSION,  # v1
)


@structure
class TopicPartitions:
    """Partitions of one topic, by its id."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """The first heartbeat contains every field, most later ones only ids and epoch.
    topic_partitions are those that the member still owns.

    The rebalance timeout is in ms: how long the member may take to revoke partitions. v1 adds a
    regular expression (RE2) for topics, and every member generates its own id; in v0 the
    coordinator generates it.
    """

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=UNCHANGED_TIMEOUT)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string(since=1, nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, nullable="0+", default=None
    )


@structure
class Assignment:
    """The partitions that the member may read from now on."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """The member epoch, and the heartbeat interval in ms.

    A null assignment: nothing has changed.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
