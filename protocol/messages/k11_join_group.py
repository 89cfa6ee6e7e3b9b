"""JoinGroup (11): a consumer joins its group, or rejoins because the group is rebalancing.

The response waits until all known members have joined or timed out. The response of one member, the
leader, then contains all members; it computes the assignment and sends it with SyncGroup (14).
Source: KIP-62 (v1: rebalance time-out), KIP-394 (v4: ids first), KIP-345 (v5: static members),
KIP-559 (v7: protocol type), KIP-800 (v8: reasons), KIP-814 (v9: no assignment);
JoinGroupRequest.json, JoinGroupResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, byte_string, int16, int32, message, string, structure

UNKNOWN_MEMBER_ID = ""  # of a member that has no id yet
REBALANCE_TIMEOUT_IS_THE_SESSIONS = -1  # as v0, which has no time-out for rebalances
NO_GENERATION_ID = -1

ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,  # no way to assign that all members know
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.REBALANCE_IN_PROGRESS,  # the group could not be written in time
    ErrorCode.MEMBER_ID_REQUIRED,  # since v4: the answer has the id to join with
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.FENCED_INSTANCE_ID,  # another member has taken this instance id over
)


@structure
class JoinGroupRequestProtocol:
    """An assignment protocol that the member supports (for consumers: an assignor), and its
    metadata for it.
    """

    name: str = string()
    metadata: bytes = byte_string()


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """v1 adds the rebalance time-out (milliseconds), v5 the instance id, v8 the reason.

    Protocols are in the order of the member's preference. A member without an id gets one and,
    since v4, has to rejoin with it.
    """

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(
        since=1, default=REBALANCE_TIMEOUT_IS_THE_SESSIONS, ignorable=True
    )
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(since=8, nullable="8+", default=None, ignorable=True)


@structure
class JoinGroupResponseMember:
    """A member and its subscription; only the leader gets them."""

    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable="5+", default=None, ignorable=True)
    metadata: bytes = byte_string()


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The new generation, and its leader. protocol_name is null (v7) or empty with an error.

    skip_assignment (v9) is for a static leader that rejoined: the assignment stays, but it should
    watch the metadata again.
    """

    throttle_time_ms: int = int32(since=2, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=NO_GENERATION_ID)
    protocol_type: str | None = string(since=7, nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
