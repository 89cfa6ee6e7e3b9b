"""LeaveGroup (13): members leave, or are removed, without waiting for their sessions to time out.

Source: KIP-345 (v3: several members, static ones by their instance id), KIP-800 (v5: reasons);
LeaveGroupRequest.json, LeaveGroupResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.UNKNOWN_MEMBER_ID,  # of a member; up to v2 of the request
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.FENCED_INSTANCE_ID,  # of a member
)


@structure
class MemberIdentity:
    """A member by its id; an administrator removes a static member by its instance id alone, with
    an empty member id.
    """

    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable="3+", default=None)
    reason: str | None = string(since=5, nullable="5+", default=None, ignorable=True)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """Up to v2 one member leaves, since v3 any number of them."""

    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


@structure
class MemberResponse:
    """The result of one member."""

    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable="3+")
    error_code: int = int16(since=3)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """A top-level error, and since v3 one per member."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)
