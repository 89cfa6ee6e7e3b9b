"""RemoveRaftVoter (81): remove a voter from the metadata quorum.

A leader may remove itself: it resigns once the change is committed.
Source: KIP-853; RemoveVoterHandler, RemoveRaftVoterRequest.json, RemoveRaftVoterResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import int16, int32, message, string, uuid

ERRORS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,  # kraft.version is 0: the voters stand in the configuration
    ErrorCode.VOTER_NOT_FOUND,
    ErrorCode.REQUEST_TIMED_OUT,  # another change is under way
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    """Node id and directory id must both be those of a voter."""

    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    """No error once the new voter set is committed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)
