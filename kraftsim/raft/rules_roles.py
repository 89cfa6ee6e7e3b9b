"""The roles of a replica and their state; above all the leader's, which determines what is
committed.

A record is committed once a majority of the voters has it, together with the leader's LeaderChange
record: before that, records of former epochs are not committed either (KAFKA-12619). The leader's
own log counts up to its flushed offset. (Kafka counts it when appended: a deliberate deviation,
docs/deviations.md; counting too early was KAFKA-10533.)
Source: KIP-595, KIP-996, org.apache.kafka.raft.{LeaderState, UnattachedState, FollowerState,
ProspectiveState, CandidateState, ResignedState}.
"""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from msgspec import Struct

from kraftsim.raft.rules_log import RaftLog, SnapshotId
from kraftsim.raft.rules_settings import OBSERVER_SESSION_MS
from kraftsim.raft.rules_voters import Endpoints, ReplicaKey, VoterSet

UNKNOWN_TIME: Final = -1


# --------------------------------------------------------------------------------------------------
# The leader's state: follower progress, the high watermark, and the check quorum timeout


class ReplicaProgress(Struct, kw_only=True):
    """The progress of another replica.

    Two clocks: the monotonic one for timeouts, the wall clock for DescribeQuorum.
    """

    key: ReplicaKey
    end_offset: int | None = None
    last_fetch_ms: int | None = None
    last_fetch_wall_ms: int = UNKNOWN_TIME
    last_caught_up_wall_ms: int = UNKNOWN_TIME
    leader_end_at_last_fetch: int = -1
    has_acknowledged: bool = False
    """Whether it has acknowledged this leader."""


class Leadership:
    """The leader state of one epoch.

    `own` is the leader, which may not be a voter any more while it commits its own removal.
    """

    def __init__(
        self,
        *,
        own: ReplicaKey,
        epoch: int,
        epoch_start_offset: int,
        voters: VoterSet,
        granting: tuple[ReplicaKey, ...],
        now_ms: int,
    ) -> None:
        self.own = own
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        """The offset of the LeaderChange record of this epoch."""
        self.granting = granting
        self.is_announced = False
        """Whether the effect `Lead` was returned."""
        self.published_high_watermark = -1
        """The last high watermark published in this epoch; -1: none yet."""
        self.removed_at_offset: int | None = None
        """The offset of the record that removes the leader from the voters; once committed it
        resigns.
        """
        self._voters = voters
        self._progress: dict[ReplicaKey, ReplicaProgress] = {}
        self._majority_contact_ms = now_ms
        self._heard: dict[int, None] = {}
        self.set_voters(voters, epoch_start_offset)

    @property
    def voters(self) -> VoterSet:
        """The current voters."""
        return self._voters

    @property
    def followers(self) -> tuple[ReplicaProgress, ...]:
        """The other voters, by id."""
        return tuple(
            self._progress[self._known(key)] for key in self._voters.keys if key.id != self.own.id
        )

    def observers(self, now_ms: int) -> tuple[ReplicaProgress, ...]:
        """Replicas that fetch and do not vote; silent ones are removed after five minutes."""
        for progress in list(self._progress.values()):
            is_silent = (
                progress.last_fetch_ms is not None
                and now_ms - progress.last_fetch_ms >= OBSERVER_SESSION_MS
            )
            if is_silent and not self._voters.includes(progress.key):
                del self._progress[progress.key]
        return tuple(
            progress for progress in self._progress.values() if not self._is_voter(progress.key)
        )

    def progress_of(self, key: ReplicaKey) -> ReplicaProgress | None:
        """Return the progress of a replica; None if it never fetched."""
        return self._progress.get(self._known(key))

    def set_voters(self, voters: VoterSet, offset: int) -> None:
        """Apply a voter set, appended at an offset: it is used from now on."""
        self._voters = voters
        self.removed_at_offset = None if voters.includes(self.own) else offset
        for key in voters.keys:
            if key.id != self.own.id:
                self._progress.setdefault(self._known(key), ReplicaProgress(key=key))

    def on_fetch(
        self, key: ReplicaKey, fetch_offset: int, log_end_offset: int, now_ms: int, wall_ms: int
    ) -> None:
        """Record that a replica has everything before an offset.

        The offset may decrease: a voter may have lost its disk.
        """
        known = self._known(key)
        progress = self._progress.get(known)
        if progress is None:
            progress = self._progress[known] = ReplicaProgress(key=key)
        progress.has_acknowledged = True
        if fetch_offset >= log_end_offset or fetch_offset >= progress.leader_end_at_last_fetch >= 0:
            is_now = fetch_offset >= log_end_offset
            progress.last_caught_up_wall_ms = max(
                wall_ms if is_now else progress.last_fetch_wall_ms, progress.last_caught_up_wall_ms
            )
        progress.end_offset = fetch_offset
        progress.leader_end_at_last_fetch = log_end_offset
        progress.last_fetch_ms, progress.last_fetch_wall_ms = now_ms, wall_ms
        self.record_contact(key, now_ms)

    def record_contact(self, key: ReplicaKey, now_ms: int) -> None:
        """Record a Fetch or FetchSnapshot of a replica.

        For a sole voter any such request proves that it is reachable.
        """
        if self._is_voter(key):
            self._heard[key.id] = None
        needed = self._voters.majority - (1 if self._voters.includes(self.own) else 0)
        if len(self._heard) >= needed:
            self._heard.clear()
            self._majority_contact_ms = now_ms

    def resigns_at_ms(self, check_quorum_ms: int) -> int | None:
        """Return when this leader resigns without requests from a majority; None for a sole
        voter.
        """
        return (
            None
            if self._voters.is_only_voter(self.own)
            else self._majority_contact_ms + check_quorum_ms
        )

    def reachable_count(self, since_ms: int) -> int:
        """Return how many voters sent a Fetch since a time, the leader included if it is a
        voter.
        """
        fetched = (
            each.last_fetch_ms is not None and each.last_fetch_ms > since_ms
            for each in self.followers
        )
        return sum(fetched) + self._voters.includes(self.own)

    def high_watermark(self, log: RaftLog) -> int | None:
        """Return the new high watermark; None if unchanged."""
        ends = sorted([self._end_of(key, log) for key in self._voters.keys], reverse=True)
        candidate = ends[len(ends) // 2]
        if not self._covers_own_epoch(candidate) or (
            log.high_watermark is not None and candidate <= log.high_watermark
        ):
            return None
        return candidate

    def successors(self) -> tuple[ReplicaKey, ...]:
        """Return the other voters, the most complete log first."""

        def rank(progress: ReplicaProgress) -> tuple[int, int]:
            return (1 if progress.end_offset is None else -progress.end_offset, progress.key.id)

        return tuple(progress.key for progress in sorted(self.followers, key=rank))

    def _covers_own_epoch(self, high_watermark: int) -> bool:
        """Return whether the first record of this epoch would be committed."""
        return high_watermark > self.epoch_start_offset

    def _counted_end_offset(self, log: RaftLog) -> int:
        """Return how far the leader counts its own log: as far as a loss of power leaves it."""
        return log.flushed_end_offset

    def _end_of(self, key: ReplicaKey, log: RaftLog) -> int:
        if key.id == self.own.id:
            return self._counted_end_offset(log)
        end_offset = self._progress[self._known(key)].end_offset
        return -1 if end_offset is None else end_offset

    def _is_voter(self, key: ReplicaKey) -> bool:
        return self._voters.includes(key)

    def _known(self, key: ReplicaKey) -> ReplicaKey:
        """Return the key under which a replica is stored: with static voters the directory id is
        ignored.
        """
        node = self._voters.node(key.id)
        return node.key if node is not None and node.key.is_same_as(key) else key


# --------------------------------------------------------------------------------------------------
# The roles, and `MAY_BECOME`. Times are milliseconds of the monotonic clock

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
