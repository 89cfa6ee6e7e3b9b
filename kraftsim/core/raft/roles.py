"""The roles of a quorum replica, with their state. Times are milliseconds of the monotonic clock.

Source: KIP-595, KIP-996, org.apache.kafka.raft.{UnattachedState, FollowerState, ProspectiveState,
CandidateState, LeaderState, ResignedState}.
"""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kraftsim.core.raft.leadership import Leadership
from kraftsim.core.raft.raft_log import SnapshotId
from kraftsim.core.raft.voter_set import Endpoints, ReplicaKey

NEVER: Final = 1 << 62
"""A time that is never reached."""


@dataclass(slots=True, kw_only=True)
class Unattached:
    """The leader of the epoch, or its address, is unknown. May have voted."""

    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None
    election_at_ms: int = NEVER


@dataclass(slots=True, kw_only=True)
class SnapshotFetch:
    """A snapshot being fetched, and the position."""

    snapshot: SnapshotId
    position: int = 0
    is_complete: bool = False


@dataclass(slots=True, kw_only=True)
class Follower:
    """Fetches from the leader of the epoch."""

    epoch: int
    leader_id: int
    endpoints: Endpoints
    voted: ReplicaKey | None = None
    fetch_until_ms: int
    """The fetch timeout: without a successful Fetch until then the leader has failed."""
    has_fetched: bool = False
    """Whether the leader has answered a Fetch in this epoch: then a pre-vote is rejected."""
    update_voter_at_ms: int = NEVER
    has_updated_voter: bool = False
    snapshot_fetch: SnapshotFetch | None = None


@dataclass(slots=True, kw_only=True)
class Canvass:
    """The votes of an election."""

    granted: dict[int, None] = field(default_factory=dict)
    rejected: dict[int, None] = field(default_factory=dict)

    def has_answered(self, voter_id: int) -> bool:
        """Return whether a voter has responded."""
        return voter_id in self.granted or voter_id in self.rejected

    def grant(self, voter_id: int) -> None:
        """Record a granted vote."""
        self.rejected.pop(voter_id, None)
        self.granted[voter_id] = None

    def reject(self, voter_id: int) -> None:
        """Record a rejected vote."""
        if voter_id not in self.granted:
            self.rejected[voter_id] = None


@dataclass(slots=True, kw_only=True)
class Prospective:
    """Runs a pre-vote before it bumps the epoch (KIP-996)."""

    epoch: int
    leader_id: int | None = None
    leader_endpoints: Endpoints = field(default_factory=dict)
    voted: ReplicaKey | None = None
    canvass: Canvass = field(default_factory=Canvass)
    election_at_ms: int


@dataclass(slots=True, kw_only=True)
class Candidate:
    """Runs an election in a new epoch."""

    epoch: int
    canvass: Canvass = field(default_factory=Canvass)
    election_at_ms: int
    retries: int = 1
    backs_off_until_ms: int | None = None
    """Set once the election is lost: the time of the next one."""


@dataclass(slots=True, kw_only=True)
class Leader:
    """The leader of the epoch."""

    epoch: int
    leadership: Leadership
    begin_epoch_at_ms: int = 0
    """The time of the next BeginQuorumEpoch requests."""


@dataclass(slots=True, kw_only=True)
class Resigned:
    """Was leader of the epoch and has resigned; sends EndQuorumEpoch."""

    epoch: int
    successors: tuple[ReplicaKey, ...] = ()
    """The other voters, the most complete log first."""
    acknowledged: dict[int, None] = field(default_factory=dict)
    unreachable: dict[int, None] = field(default_factory=dict)
    """Voters without a response; a node that shuts down does not wait for them."""
    election_at_ms: int


Role: TypeAlias = Unattached | Follower | Prospective | Candidate | Leader | Resigned

MAY_BECOME: Final[dict[type, tuple[type, ...]]] = {
    Unattached: (Unattached, Follower, Prospective, Candidate),
    Follower: (Unattached, Follower, Prospective, Candidate),
    Prospective: (Unattached, Follower, Prospective, Candidate),
    Candidate: (Unattached, Follower, Prospective, Candidate, Leader),
    Leader: (Unattached, Follower, Resigned),
    Resigned: (Unattached, Follower, Prospective, Candidate),
}
"""The valid transitions.

A leader never becomes candidate in its own epoch, and only a candidate becomes leader.
"""
