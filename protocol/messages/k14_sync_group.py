"""SyncGroup (14): the leader sends the assignments, and every member receives its own.

The responses wait for the leader's request, and until its assignment is written to
`__consumer_offsets`.
Source: KIP-345 (v3: static members), KIP-559 (v5: protocol type and name); SyncGroupRequest.json,
SyncGroupResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, byte_string, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,  # the assignment is too large for the offsets topic
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,  # since v5: type or name is not the group's
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,  # join again; also while the coordinator is loading
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.FENCED_INSTANCE_ID,
)


@structure
class SyncGroupRequestAssignment:
    """The assignment of one member, in the format of the group's protocol."""

    member_id: str = string()
    assignment: bytes = byte_string()


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """assignments are the leader's; other members send none. v5 repeats the protocol that the
    member assumes to be selected.
    """

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable="3+", default=None)
    protocol_type: str | None = string(since=5, nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The member's own assignment, empty with an error."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable="5+", default=None, ignorable=True)
    assignment: bytes = byte_string()
