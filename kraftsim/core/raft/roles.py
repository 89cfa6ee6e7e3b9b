"""What a replica of the quorum can be, and what it knows while it is that. All moments are milliseconds of the monotonic clock.

Source: KIP-595, KIP-996, org.apache.kafka.raft.{UnattachedState, FollowerState, ProspectiveState, CandidateState, LeaderState, ResignedState}.
"""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kraftsim.core.raft.leadership import Leadership
from kraftsim.core.raft.raft_log import SnapshotId
from kraftsim.core.raft.voter_set import Endpoints, ReplicaKey

NEVER: Final = 1 << 62
"""A moment that does not come."""


@dataclass(slots=True, kw_only=True)
class Unattached:
    """Nobody is known to lead the epoch, or where the leader is reached. May have voted."""

    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None
    election_at_ms: int = NEVER


@dataclass(slots=True, kw_only=True)
class SnapshotFetch:
    """A snapshot that is being fetched, and how far."""

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
    """Without a successful Fetch until then the leader counts as gone."""
    has_fetched: bool = False
    """Whether the leader answered a Fetch in this epoch: then a pre-vote is refused."""
    update_voter_at_ms: int = NEVER
    has_updated_voter: bool = False
    snapshot_fetch: SnapshotFetch | None = None


@dataclass(slots=True, kw_only=True)
class Canvass:
    """Votes asked for and given."""

    granted: dict[int, None] = field(default_factory=dict)
    rejected: dict[int, None] = field(default_factory=dict)

    def has_heard(self, voter_id: int) -> bool:
        """Tell whether a voter answered."""
        return voter_id in self.granted or voter_id in self.rejected

    def grant(self, voter_id: int) -> None:
        """A voter agrees."""
        self.rejected.pop(voter_id, None)
        self.granted[voter_id] = None

    def reject(self, voter_id: int) -> None:
        """A voter refuses."""
        if voter_id not in self.granted:
            self.rejected[voter_id] = None


@dataclass(slots=True, kw_only=True)
class Prospective:
    """Asks whether it would be elected before it raises the epoch (KIP-996)."""

    epoch: int
    leader_id: int | None = None
    leader_endpoints: Endpoints = field(default_factory=dict)
    voted: ReplicaKey | None = None
    canvass: Canvass = field(default_factory=Canvass)
    election_at_ms: int


@dataclass(slots=True, kw_only=True)
class Candidate:
    """Asks for votes in an epoch of its own."""

    epoch: int
    canvass: Canvass = field(default_factory=Canvass)
    election_at_ms: int
    retries: int = 1
    backs_off_until_ms: int | None = None
    """Set once the election is lost: the next one begins then."""


@dataclass(slots=True, kw_only=True)
class Leader:
    """Leads the epoch."""

    epoch: int
    leadership: Leadership
    begin_epoch_at_ms: int = 0
    """When voters are told again that this node leads."""


@dataclass(slots=True, kw_only=True)
class Resigned:
    """Has led the epoch and does not any more, or was told to stop; tells the others to elect somebody."""

    epoch: int
    successors: tuple[ReplicaKey, ...] = ()
    """Other voters, the most complete log first."""
    acknowledged: dict[int, None] = field(default_factory=dict)
    unreachable: dict[int, None] = field(default_factory=dict)
    """Voters that could not be told; a node that stops does not wait for them."""
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
"""The one table of changes. A leader never becomes a candidate of its own epoch, and only a candidate becomes a leader."""
