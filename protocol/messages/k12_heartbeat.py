"""Heartbeat (12): keeps the session of a classic group member alive; the error tells whether a
rebalance is in progress.

Source: KIP-345 (v3: static members); HeartbeatRequest.json, HeartbeatResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import int16, int32, message, string

ERRORS = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,  # the session stays alive, but the member has to rejoin
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.FENCED_INSTANCE_ID,
)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """v3 adds the instance id. A coordinator that is still loading the group returns no error."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable="3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """Only an error code."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
