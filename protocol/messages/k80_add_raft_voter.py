"""AddRaftVoter (80): make a controller a voter of the metadata quorum.

The leader first waits until the new voter has caught up, then writes the new voter set; one change
at a time prevents two disjoint majorities.
Source: KIP-853; KIP-1186 (v1: response before the change is committed); AddVoterHandler,
AddRaftVoterRequest.json, AddRaftVoterResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int16, int32, message, string, structure, uint16, uuid

ERRORS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,  # kraft.version is 0: the voters stand in the configuration
    ErrorCode.DUPLICATE_VOTER,
    ErrorCode.REQUEST_TIMED_OUT,  # another change is under way, or the newcomer does not catch up
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


@structure
class Listener:
    """One endpoint of the voter, by listener name."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    """A voter is a node id together with a directory id: a node that lost its disk is another
    voter.
    """

    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean(since=1, default=True)


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    """No error once the new voter set is committed (v1: or only written, if requested)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)
