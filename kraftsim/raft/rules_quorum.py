"""A replica's state in the quorum: role and epoch, and the one function that changes both
(`Quorum._enter`).

Every transition but resignation is durable before its effects are visible to other nodes: `Persist`
comes first among the effects. `MAY_BECOME` in `rules_roles` has the valid transitions.
Source: org.apache.kafka.raft.QuorumState.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from msgspec import Struct

from kraftsim.events.event import Event
from kraftsim.raft.events import (
    ElectionOpened,
    HighWatermarkMoved,
    QuorumTimersSet,
    RaftRoleChanged,
    VoteSent,
)
from kraftsim.raft.rules_effects import (
    Advance,
    Effect,
    EmitEvent,
    LeaderKnown,
    Persist,
    Send,
    StopLeading,
    WakeFetches,
)
from kraftsim.raft.rules_log import RaftLog
from kraftsim.raft.rules_roles import (
    MAY_BECOME,
    NEVER,
    Candidate,
    Follower,
    Leader,
    Leadership,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from kraftsim.raft.rules_settings import RETRY_BACKOFF_BASE_MS, UPDATE_VOTER_FACTOR, RaftSettings
from kraftsim.raft.rules_voters import (
    DYNAMIC_VOTERS,
    Address,
    Endpoints,
    ReplicaKey,
    VoterHistory,
    VoterNode,
    VoterSet,
)
from protocol.schema import Message
from protocol.storage.quorum_state import NO_LEADER_ID, NOT_VOTED, QuorumState, QuorumVoter
from protocol.uuids import ZERO_UUID

# --------------------------------------------------------------------------------------------------
# The requests to other replicas, one in flight to each, with a backoff after failures
#
# Source: org.apache.kafka.raft.RequestManager.


class _Peer(Struct):
    """The state of a connection."""

    in_flight: int | None = None
    backs_off_until_ms: int = 0


class Peers:
    """The requests of one replica. Check `is_ready` before `send`."""

    def __init__(self, retry_backoff_ms: int) -> None:
        self._retry_backoff_ms = retry_backoff_ms
        self._peers: dict[int, _Peer] = {}
        self._asked: dict[int, tuple[int, Message]] = {}
        self._next_number = 0

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """Return whether a request may be sent to a node now."""
        peer = self._peers.get(node_id)
        return peer is None or (peer.in_flight is None and peer.backs_off_until_ms <= now_ms)

    def is_backing_off(self, node_id: int, now_ms: int) -> bool:
        """Return whether a node is in its backoff after a failure."""
        peer = self._peers.get(node_id)
        return peer is not None and peer.backs_off_until_ms > now_ms

    def ready_at_ms(self, node_id: int) -> int | None:
        """Return when a node is ready again; None while a response is pending."""
        peer = self._peers.get(node_id)
        if peer is None:
            return 0
        return None if peer.in_flight is not None else peer.backs_off_until_ms

    def send(self, node_id: int, address: Address, body: Message) -> Send:
        """Build a request. The caller has checked `is_ready`."""
        peer = self._peers.get(node_id) or self._new_peer(node_id)
        assert peer.in_flight is None, f"node {node_id} has a request in flight"
        self._next_number += 1
        peer.in_flight = self._next_number
        self._asked[self._next_number] = (node_id, body)
        return Send(self._next_number, node_id, address, body)

    def is_expected(self, number: int) -> bool:
        """Return whether a response is still expected: not after `forget_all`, which starts every
        epoch and role.
        """
        peer = self._peers.get(self._asked[number][0])
        return peer is not None and peer.in_flight == number

    def take(self, number: int, *, failed_at_ms: int | None = None) -> tuple[int, Message]:
        """Return (node, request) of a completed request."""
        node_id, body = self._asked.pop(number)
        peer = self._peers.get(node_id) or self._new_peer(node_id)
        if peer.in_flight == number:
            peer.in_flight = None
            if failed_at_ms is not None:
                peer.backs_off_until_ms = failed_at_ms + self._retry_backoff_ms
        return node_id, body

    def back_off(self, node_id: int, now_ms: int) -> None:
        """Start the backoff of a node: its response was not useful."""
        (self._peers.get(node_id) or self._new_peer(node_id)).backs_off_until_ms = (
            now_ms + self._retry_backoff_ms
        )

    def forget_all(self) -> None:
        """Reset at the start of a role or epoch: pending responses are ignored, and backoffs
        end.
        """
        self._peers.clear()

    def is_awaiting_any(self) -> bool:
        """Return whether a request is in flight."""
        return any(peer.in_flight is not None for peer in self._peers.values())

    def some_ready(
        self, node_ids: Sequence[int], now_ms: int, draw: Callable[[int], int]
    ) -> int | None:
        """Return a random node of those that are ready; None if there are none."""
        ready = [node_id for node_id in node_ids if self.is_ready(node_id, now_ms)]
        return ready[draw(len(ready))] if ready else None

    def _new_peer(self, node_id: int) -> _Peer:
        peer = self._peers[node_id] = _Peer()
        return peer


LeadershipFactory = Callable[..., Leadership]
MAX_SHIFT: Final = 20
LAST_EPOCH: Final = 2**31 - 1
"""An epoch is an int32."""


class FatalQuorumError(Exception):
    """An invalid state: two leaders in an epoch, or a leader unaware of its leadership.

    The process stops, as Kafka's does.
    """


class Quorum:
    """The shared state of a replica.

    Times are milliseconds of the monotonic clock; `draw(n)` is a random number from 0 to n - 1.
    """

    def __init__(
        self,
        *,
        own: ReplicaKey,
        cluster_id: str,
        listener: str,
        own_endpoints: Endpoints,
        settings: RaftSettings,
        log: RaftLog,
        voters: VoterHistory,
        bootstrap: Sequence[Address] = (),
        draw: Callable[[int], int],
        emit: Callable[[Event], None],
        leadership: LeadershipFactory = Leadership,
    ) -> None:
        self.own = own
        self.cluster_id = cluster_id
        self.listener = listener
        """The name of the controller listener."""
        self.own_endpoints = own_endpoints
        self.settings = settings
        self.log = log
        self.voters = voters
        self.bootstrap = tuple(bootstrap)
        self.draw = draw
        self.emit = emit
        self.peers = Peers(settings.retry_backoff_ms)
        self.effects: list[Effect] = []
        self.role: Role = Unattached(epoch=0)
        self.epoch = 0
        """The highest known epoch: that of the role."""
        self.is_stopping = False
        self._leadership = leadership
        self._published_leader: tuple[int, int | None] = (0, None)
        self._nodes_of_other_clusters: set[int] = set()

    def is_first_refusal_by(self, node_id: int) -> bool:
        """Record that a node belongs to another cluster; False if that was known.

        A replica repeats its request every retry backoff: the operator needs one line, not 50 per
        second.
        """
        is_first = node_id not in self._nodes_of_other_clusters
        self._nodes_of_other_clusters.add(node_id)
        return is_first

    # Queries
    # ----------------------------------------------------------------------------------------------

    @property
    def leader_id(self) -> int | None:
        """The leader of the epoch, as far as known."""
        role = self.role
        if type(role) is Follower:
            return role.leader_id
        match role:
            case Leader() | Resigned():
                return self.own.id
            case Follower(leader_id=leader_id):
                return leader_id
            case Unattached(leader_id=known) | Prospective(leader_id=known):
                return known
            case Candidate():
                return None

    @property
    def leader_endpoints(self) -> Endpoints:
        """The leader's endpoints; empty if unknown."""
        role = self.role
        if type(role) is Follower:
            return role.endpoints
        match role:
            case Leader() | Resigned():
                return self.own_endpoints
            case Follower(endpoints=endpoints):
                return endpoints
            case Prospective(leader_endpoints=endpoints):
                return endpoints
            case _:
                return {}

    @property
    def is_voter(self) -> bool:
        """Whether this replica is a voter."""
        return self.voters.latest.includes(self.own)

    @property
    def voter_set(self) -> VoterSet:
        """The current voters."""
        return self.voters.latest

    def election_timeout(self, now_ms: int) -> int:
        """Return a random election deadline."""
        return (
            now_ms
            + self.settings.election_timeout_ms
            + self.draw(self.settings.election_timeout_ms)
        )

    def election_backoff(self, retries: int) -> int:
        """Return a random backoff after a lost election; it doubles with each one."""
        slots = 2 << min(MAX_SHIFT, retries - 1)
        return min(self.settings.election_backoff_max_ms, RETRY_BACKOFF_BASE_MS * self.draw(slots))

    # Transitions
    # ----------------------------------------------------------------------------------------------

    def begin(self, persisted: QuorumState | None, now_ms: int) -> None:
        """Restore the state from `quorum-state` and the log."""
        self._emit_timers()
        state = persisted or QuorumState()
        log_epoch = self.log.last_epoch
        if state.leader_epoch < log_epoch:
            self._enter(Unattached(epoch=log_epoch, election_at_ms=self._voter_timeout(now_ms)))
            return
        epoch = state.leader_epoch
        voted = (
            ReplicaKey(state.voted_id, state.voted_directory_id)
            if state.voted_id != NOT_VOTED
            else None
        )
        if state.leader_id == self.own.id and self.is_voter:
            self.role = self._role_after_leading(epoch, now_ms)
        elif (
            state.leader_id == NO_LEADER_ID
            and voted is not None
            and voted.is_same_as(self.own)
            and self.is_voter
        ):
            candidate = Candidate(epoch=epoch, election_at_ms=self.election_timeout(now_ms))
            candidate.canvass.grant(self.own.id)
            self.role = candidate
        elif state.leader_id not in (NO_LEADER_ID, self.own.id) and self.voter_set.endpoints_of(
            state.leader_id
        ):
            self.role = self._following(
                epoch, state.leader_id, self.voter_set.endpoints_of(state.leader_id), voted, now_ms
            )
        else:
            leader_id = None if state.leader_id == NO_LEADER_ID else state.leader_id
            self.role = Unattached(
                epoch=epoch,
                leader_id=leader_id,
                voted=voted,
                election_at_ms=self._voter_timeout(now_ms),
            )
        self.epoch = epoch
        self._emit()
        self._publish_leader()

    def become_unattached(
        self,
        epoch: int,
        now_ms: int,
        *,
        leader_id: int | None = None,
        voted: ReplicaKey | None = None,
    ) -> None:
        """Become unattached in an epoch without a known or reachable leader, or vote in it."""
        election_at_ms = (
            self._voter_timeout(now_ms) if voted is not None else self._remaining_timeout(now_ms)
        )
        self._enter(
            Unattached(epoch=epoch, leader_id=leader_id, voted=voted, election_at_ms=election_at_ms)
        )

    def become_follower(
        self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int
    ) -> None:
        """Become follower of a leader.

        Raises FatalQuorumError if this node is the leader or the epoch has another one.
        """
        if leader_id == self.own.id:
            raise FatalQuorumError(f"node {leader_id} is named leader of epoch {epoch}, but is not")
        if epoch == self.epoch and self.leader_id not in (None, leader_id):
            raise FatalQuorumError(f"both {self.leader_id} and {leader_id} lead epoch {epoch}")
        if not endpoints:
            raise FatalQuorumError(
                f"leader {leader_id} of epoch {epoch} is not a voter, and its address is unknown"
            )
        self._enter(self._following(epoch, leader_id, endpoints, self._vote_in(epoch), now_ms))

    def become_candidate(self, now_ms: int, *, retries: int = 1) -> None:
        """Become candidate in a new epoch, with the vote for itself."""
        assert self.is_voter, "only voters become candidates"
        if self.epoch >= LAST_EPOCH:
            raise FatalQuorumError(f"there is no epoch after {self.epoch}")
        candidate = Candidate(
            epoch=self.epoch + 1, election_at_ms=self.election_timeout(now_ms), retries=retries
        )
        candidate.canvass.grant(self.own.id)
        self._enter(candidate)
        self.emit(
            ElectionOpened(leader_epoch=self.epoch, timeout_ms=candidate.election_at_ms - now_ms)
        )
        if not self.voter_set.is_only_voter(self.own):
            self.effects.append(
                EmitEvent(VoteSent(leader_epoch=self.epoch, candidate_id=self.own.id))
            )

    def become_prospective(self, now_ms: int) -> None:
        """Become prospective: a pre-vote in the current epoch."""
        prospective = Prospective(
            epoch=self.epoch,
            leader_id=self.leader_id,
            leader_endpoints=self.leader_endpoints,
            voted=self._vote_in(self.epoch),
            election_at_ms=self.election_timeout(now_ms),
        )
        prospective.canvass.grant(self.own.id)
        self._enter(prospective)

    def vote_for(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Vote for a candidate; the vote is durable before the response is sent."""
        match self.role:
            case Unattached(leader_id=leader_id):
                self._enter(
                    Unattached(
                        epoch=self.epoch,
                        leader_id=leader_id,
                        voted=candidate,
                        election_at_ms=self._voter_timeout(now_ms),
                    )
                )
            case Prospective() as role:
                self._enter(replace(role, voted=candidate))
            case role:
                raise AssertionError(f"a {type(role).__name__} cannot vote")

    def send_to(self, voter: VoterNode, body: Message) -> None:
        """Send a request to another voter; it must be ready."""
        address = self.address_in(voter.endpoints)
        assert address is not None, f"the address of voter {voter.key.id} is unknown"
        self.effects.append(self.peers.send(voter.key.id, address, body))

    def address_in(self, endpoints: Endpoints) -> Address | None:
        """Return the address on the controller listener among several endpoints, else the first."""
        return endpoints.get(self.listener) or next(iter(endpoints.values()), None)

    def become_leader(self, now_ms: int) -> Leadership:
        """Become leader of the election that was won."""
        assert isinstance(self.role, Candidate), "only a candidate becomes a leader"
        granting = tuple(
            node.key
            for node in self.voters.latest.nodes
            if node.key.id in self.role.canvass.granted
        )
        leadership = self._leadership(
            own=self.own,
            epoch=self.epoch,
            epoch_start_offset=self.log.end_offset,
            voters=self.voter_set,
            granting=granting,
            now_ms=now_ms,
        )
        self._enter(Leader(epoch=self.epoch, leadership=leadership))
        return leadership

    def resign(self, now_ms: int, reason: str) -> None:
        """Resign; this is not persisted, as a restart has the same result."""
        assert isinstance(self.role, Leader), "only a leader resigns"
        successors = self.role.leadership.successors()
        self._enter(
            Resigned(
                epoch=self.epoch,
                successors=successors,
                election_at_ms=self.election_timeout(now_ms),
            ),
            reason,
        )

    def see_epoch(
        self, epoch: int, leader_id: int | None, endpoints: Endpoints, now_ms: int
    ) -> None:
        """Handle an epoch and leader from any request or response.

        Raises FatalQuorumError for an invalid state.
        """
        if epoch < self.epoch:
            return
        role = self.role
        if (
            epoch == self.epoch
            and type(role) is Follower
            and role.leader_id == leader_id
            and 0 < len(endpoints) <= len(role.endpoints)
        ):
            return  # the common case
        known_endpoints = endpoints or (
            self.voter_set.endpoints_of(leader_id) if leader_id is not None else {}
        )
        if epoch > self.epoch:
            if leader_id is None:
                self.become_unattached(epoch, now_ms)
            else:
                self.become_follower(epoch, leader_id, known_endpoints, now_ms)
        elif leader_id is not None and self._is_news(leader_id, known_endpoints):
            self.become_follower(epoch, leader_id, known_endpoints, now_ms)

    def advance(self, high_watermark: int) -> None:
        """Advance the high watermark."""
        known = self.log.high_watermark
        assert known is None or high_watermark >= known, (
            f"the high watermark would decrease from {known} to {high_watermark}"
        )
        if known is None or high_watermark > known:
            self.log.high_watermark = high_watermark
            self.emit(
                HighWatermarkMoved(
                    leader_epoch=self.epoch,
                    high_watermark=high_watermark,
                    last_epoch=self.log.epoch_before(high_watermark),
                    voter_count=len(self.voter_set),
                    is_leader=isinstance(self.role, Leader),
                )
            )
            self.effects.append(Advance(high_watermark))

    def persisted(self) -> QuorumState:
        """Return the contents of `quorum-state` for the current role.

        With pre-vote support the vote is kept beside the leader.
        """
        role = self.role
        leader_id = self.leader_id
        voted = role.voted if isinstance(role, Unattached | Follower | Prospective) else None
        if isinstance(role, Candidate):
            voted = self.own
        if leader_id is not None and not self.settings.has_pre_vote:
            voted = None
        is_static = self.voters.kraft_version < DYNAMIC_VOTERS
        return QuorumState(
            leader_id=NO_LEADER_ID if leader_id is None else leader_id,
            leader_epoch=role.epoch,
            voted_id=NOT_VOTED if voted is None else voted.id,
            voted_directory_id=ZERO_UUID if voted is None or is_static else voted.directory_id,
            current_voters=[QuorumVoter(voter_id=voter_id) for voter_id in self.voter_set.ids]
            if is_static
            else [],
        )

    # The only transition function
    # ----------------------------------------------------------------------------------------------

    def _enter(self, role: Role, reason: str = "") -> None:
        former = self.role
        assert type(role) in MAY_BECOME[type(former)], (
            f"{type(former).__name__} cannot become {type(role).__name__}"
        )
        assert role.epoch >= former.epoch, (
            f"the epoch would decrease from {former.epoch} to {role.epoch}"
        )
        if not isinstance(role, Resigned):
            self._check_vote(former, role)
        is_new_epoch = role.epoch != former.epoch
        self.role, self.epoch = role, role.epoch
        if is_new_epoch or type(role) is not type(former):
            self.peers.forget_all()
        if not isinstance(role, Resigned):
            self.effects.append(Persist(self.persisted(), self.voters.kraft_version))
        if isinstance(former, Leader):
            self.effects.append(
                StopLeading(former.epoch, reason or f"epoch {role.epoch} has begun")
            )
            self.effects.append(WakeFetches())
        self._emit()
        self._publish_leader()

    def _check_vote(self, former: Role, role: Role) -> None:
        """Check that there is one vote per epoch; it may be dropped only when a leader is known."""
        given, kept = _vote_of(former, self.own), _vote_of(role, self.own)
        if former.epoch == role.epoch and given is not None and kept is not None:
            assert given.is_same_as(kept), (
                f"{self.own.id} voted for {given.id} in epoch {role.epoch}, and now for {kept.id}"
            )

    def _is_news(self, leader_id: int, endpoints: Endpoints) -> bool:
        """Return whether the leader of this epoch, or its address, is new."""
        if leader_id != self.leader_id:
            return True
        if leader_id == self.own.id:
            return False  # it was leader of this epoch, and resigned
        return isinstance(self.role, Unattached | Follower | Prospective) and len(endpoints) > len(
            self.leader_endpoints
        )

    def _emit_timers(self) -> None:
        settings = self.settings
        self.emit(
            QuorumTimersSet(
                fetch_timeout_ms=settings.fetch_timeout_ms,
                election_timeout_ms=settings.election_timeout_ms,
                election_backoff_max_ms=settings.election_backoff_max_ms,
                has_pre_vote=settings.has_pre_vote,
            )
        )

    def _emit(self) -> None:
        state = self.persisted()
        role = type(self.role).__name__
        ids = {"leader_id": state.leader_id, "voted_id": state.voted_id}
        self.emit(
            RaftRoleChanged(
                role=role, leader_epoch=state.leader_epoch, **ids, is_voter=self.is_voter
            )
        )

    def _publish_leader(self) -> None:
        leader_id = None if isinstance(self.role, Resigned) else self.leader_id
        if leader_id is not None and not self.leader_endpoints:
            leader_id = None
        if (self.epoch, leader_id) == self._published_leader:
            return
        self._published_leader = (self.epoch, leader_id)
        leader = None
        if leader_id is not None:
            leader = self.voters.latest.node(leader_id) or VoterNode(
                key=ReplicaKey(leader_id), endpoints=self.leader_endpoints
            )
        self.effects.append(LeaderKnown(self.epoch, leader))

    def _role_after_leading(self, epoch: int, now_ms: int) -> Role:
        """Return the role of a former leader after a restart.

        It cannot be leader of that epoch again, as its last writes may be lost (KAFKA-10527).
        """
        successors = tuple(node.key for node in self.voter_set.others(self.own.id))
        return Resigned(
            epoch=epoch, successors=successors, election_at_ms=self.election_timeout(now_ms)
        )

    def _following(
        self,
        epoch: int,
        leader_id: int,
        endpoints: Endpoints,
        voted: ReplicaKey | None,
        now_ms: int,
    ) -> Follower:
        return Follower(
            epoch=epoch,
            leader_id=leader_id,
            endpoints=endpoints,
            voted=voted,
            fetch_until_ms=now_ms + self.settings.fetch_timeout_ms,
            update_voter_at_ms=now_ms + UPDATE_VOTER_FACTOR * self.settings.fetch_timeout_ms,
        )

    def _vote_in(self, epoch: int) -> ReplicaKey | None:
        return _vote_of(self.role, self.own) if epoch == self.epoch else None

    def _voter_timeout(self, now_ms: int) -> int:
        return self.election_timeout(now_ms) if self.is_voter else NEVER

    def _remaining_timeout(self, now_ms: int) -> int:
        """A higher epoch alone does not extend the election timeout: return the remaining time."""
        if not self.is_voter:
            return NEVER
        match self.role:
            case (
                Unattached(election_at_ms=at)
                | Candidate(election_at_ms=at)
                | Prospective(election_at_ms=at)
            ) if at != NEVER:
                return at
            case _:
                return self.election_timeout(now_ms)


def _vote_of(role: Role, own: ReplicaKey) -> ReplicaKey | None:
    match role:
        case Unattached(voted=voted) | Follower(voted=voted) | Prospective(voted=voted):
            return voted
        case Candidate() | Leader() | Resigned():
            return own
