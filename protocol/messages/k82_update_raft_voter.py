"""UpdateRaftVoter (82): a voter sends its endpoints and supported kraft.versions to the leader.

It does so after a start if the voter set in the log differs.
Source: KIP-853; UpdateVoterHandler, UpdateRaftVoterRequest.json, UpdateRaftVoterResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int16, int32, message, string, struct, structure, uint16, uuid

ERRORS = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.BROKER_NOT_AVAILABLE,
    # no address for the default listener, or the kraft.version in force is not supported
    ErrorCode.INVALID_REQUEST,
    ErrorCode.VOTER_NOT_FOUND,
    ErrorCode.REQUEST_TIMED_OUT,  # another change is under way
)


@structure
class Listener:
    """One endpoint of the voter, by listener name."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@structure
class KRaftVersionFeature:
    """The kraft.versions that the voter supports, both inclusive."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message(key=82, versions="0", flexible="0+")
class UpdateRaftVoterRequest:
    """Only the leader of this very epoch accepts it."""

    cluster_id: str | None = string(nullable="0+")
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


@structure
class CurrentLeader:
    """The leader as far as the responding node knows."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


@message(key=82, versions="0", flexible="0+")
class UpdateRaftVoterResponse:
    """No error once the change is written; the leader if it is another node."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader = struct(CurrentLeader, tag=0, tagged="0+")
