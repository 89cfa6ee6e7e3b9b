"""A replica of the metadata log, as a whole: inputs in, effects out.

Pass in every event (a request, a response, a failure, a flush, the time), then execute
`take_effects` in order and call `poll` again no later than the returned time. Nothing in here
blocks, reads a clock, or does I/O.
Source: KIP-595, org.apache.kafka.raft.KafkaRaftClient.
"""

from kraftsim.raft import rules_elections, rules_following, rules_leading
from kraftsim.raft.rules_effects import Effect
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.raft.rules_quorum import Quorum
from kraftsim.raft.rules_roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kraftsim.raft.rules_serving import VoterChanges
from kraftsim.raft.rules_voters import VoterSet
from protocol.messages.k01_fetch import FetchResponse
from protocol.messages.k18_api_versions import ApiVersionsResponse
from protocol.messages.k52_vote import VoteRequest, VoteResponse
from protocol.messages.k53_begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from protocol.messages.k54_end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from protocol.messages.k59_fetch_snapshot import FetchSnapshotResponse
from protocol.messages.k80_add_raft_voter import AddRaftVoterRequest
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest
from protocol.messages.k82_update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from protocol.schema import Message
from protocol.storage.quorum_state import QuorumState

POLLS_MAX = 16
"""The maximum number of transitions per poll: the election of a sole voter takes three."""


class RaftReplica:
    """One replica: a voter, an observer, or a future voter."""

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.changes = VoterChanges(quorum)
        self._has_begun = False

    # Queries
    # ----------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this node is leader, from the election on; it may act only after the effect
        `Lead`.
        """
        return isinstance(self.quorum.role, Leader)

    @property
    def has_stopped(self) -> bool:
        """Whether shutdown can complete: there is another leader, or no other voter."""
        quorum = self.quorum
        if not quorum.is_stopping:
            return False
        is_alone = not quorum.is_voter or quorum.voter_set.is_only_voter(quorum.own)
        has_other_leader = (
            not isinstance(quorum.role, Leader | Resigned) and quorum.leader_id is not None
        )
        role = quorum.role
        others = quorum.voter_set.others(quorum.own.id)
        is_acknowledged = isinstance(role, Resigned) and all(
            node.key.id in role.acknowledged or node.key.id in role.unreachable for node in others
        )
        return is_alone or has_other_leader or is_acknowledged

    # Lifecycle
    # ----------------------------------------------------------------------------------------------

    def begin(self, persisted: QuorumState | None, now_ms: int) -> None:
        """Start with the persisted state. The log is durable as far as it was loaded."""
        assert not self._has_begun, "a replica is started once"
        self._has_begun = True
        self.quorum.begin(persisted, now_ms)

    def stop(self) -> None:
        """Shut down: a leader resigns first; see `has_stopped`."""
        self.quorum.is_stopping = True

    def take_effects(self) -> list[Effect]:
        """Return the effects since the last call."""
        effects, self.quorum.effects = self.quorum.effects, []
        return effects

    def poll(self, now_ms: int) -> int:
        """Run what is due, and return the next poll time without other inputs."""
        for _ in range(POLLS_MAX):
            change_ms = self.changes.poll(now_ms)
            wake_ms = self._poll_role(now_ms)
            if wake_ms > now_ms:
                return min(wake_ms, change_ms)
        return now_ms + 1

    # Inputs
    # ----------------------------------------------------------------------------------------------

    def on_request(self, request: Message, ticket: object, now_ms: int) -> None:
        """Handle a request of a replica or tool; the response is a `Reply` with the same ticket."""
        match request:
            case VoteRequest():
                rules_elections.on_vote_request(self.quorum, request, ticket, now_ms)
            case BeginQuorumEpochRequest():
                rules_leading.on_begin_epoch_request(self.quorum, request, ticket, now_ms)
            case EndQuorumEpochRequest():
                rules_following.on_end_epoch_request(self.quorum, request, ticket, now_ms)
            case AddRaftVoterRequest():
                self.changes.on_add(request, ticket, now_ms)
            case RemoveRaftVoterRequest():
                self.changes.on_remove(request, ticket, now_ms)
            case UpdateRaftVoterRequest():
                self.changes.on_update(request, ticket, now_ms)
            case _:
                raise AssertionError(f"{type(request).__name__} is not a request to a replica")

    def on_response(self, number: int, response: Message, now_ms: int) -> None:
        """Handle the response to a `Send`; like Kafka's RequestManager, ignore one that is not
        expected any more.
        """
        is_expected = self.quorum.peers.is_expected(number)
        node_id, request = self.quorum.peers.take(number)
        if self.changes.is_waiting_for(number):
            self.changes.on_voter_answered(number, response, now_ms)
            return
        if not is_expected:
            return  # sent in a former epoch or role: the log and the election have changed since
        quorum = self.quorum
        match response:
            case FetchResponse():
                rules_following.on_fetch_response(quorum, node_id, request, response, now_ms)
            case VoteResponse():
                rules_elections.on_vote_response(quorum, node_id, request, response, now_ms)
            case BeginQuorumEpochResponse():
                rules_leading.on_begin_epoch_response(quorum, node_id, response, now_ms)
            case EndQuorumEpochResponse():
                rules_leading.on_end_epoch_response(quorum, node_id, response, now_ms)
            case FetchSnapshotResponse():
                rules_following.on_fetch_snapshot_response(quorum, node_id, response, now_ms)
            case UpdateRaftVoterResponse():
                rules_following.on_update_voter_response(quorum, node_id, response, now_ms)
            case ApiVersionsResponse():
                pass  # the addition of the new voter has timed out
            case _:
                raise AssertionError(
                    f"{type(response).__name__} is not a response to a replica's request"
                )

    def on_failure(self, number: int, now_ms: int, *, is_unsupported: bool = False) -> None:
        """Handle the failure of a `Send`: no connection, a timeout, or an unsupported request
        (`is_unsupported`).
        """
        node_id, request = self.quorum.peers.take(number, failed_at_ms=now_ms)
        if self.changes.is_waiting_for(number):
            self.changes.on_voter_failed(number, now_ms)
        elif isinstance(request, EndQuorumEpochRequest) and isinstance(self.quorum.role, Resigned):
            self.quorum.role.unreachable[node_id] = None
        elif is_unsupported and isinstance(request, VoteRequest):
            rules_elections.on_pre_vote_unsupported(self.quorum, now_ms)

    def on_flushed(self, end_offset: int) -> None:
        """Everything below an offset is durable, unless it was truncated since."""
        log = self.quorum.log
        log.flushed_end_offset = max(log.flushed_end_offset, min(end_offset, log.end_offset))
        if self.is_leader:
            rules_leading.on_flushed(self.quorum)

    def on_snapshot_installed(
        self, snapshot: SnapshotId, voters: VoterSet | None, kraft_version: int
    ) -> list[SnapshotId]:
        """A fetched snapshot has replaced the log; `voters` are those of the snapshot.

        Returns the older snapshots, which are deleted.
        """
        return rules_following.on_snapshot_installed(self.quorum, snapshot, voters, kraft_version)

    def on_snapshot_damaged(self, now_ms: int) -> None:
        """A fetched snapshot is corrupt; it is deleted."""
        rules_following.on_snapshot_damaged(self.quorum, now_ms)

    def append(self, record_count: int, record_kinds: str = "") -> int:
        """Assign offsets to the records of one batch and return the first.

        Write and replay them, then call `on_written`.
        """
        return rules_leading.append(self.quorum, record_count, record_kinds)

    def on_written(self) -> None:
        """Everything appended is written and replayed."""
        rules_leading.on_written(self.quorum)

    def _poll_role(self, now_ms: int) -> int:
        quorum = self.quorum
        match quorum.role:
            case Follower() as role:
                return rules_following.poll_follower(quorum, role, now_ms)
            case Leader() as role:
                return rules_leading.poll_leader(quorum, role, now_ms)
            case Unattached() as role if quorum.is_voter:
                return rules_elections.poll_unattached(quorum, role, now_ms)
            case Unattached():
                return rules_following.poll_bootstrap(quorum, now_ms)
            case Prospective() as role:
                return rules_elections.poll_prospective(quorum, role, now_ms)
            case Candidate() as role:
                return rules_elections.poll_candidate(quorum, role, now_ms)
            case Resigned() as role:
                return self._poll_resigned(role, now_ms)

    def _poll_resigned(self, role: Resigned, now_ms: int) -> int:
        quorum = self.quorum
        is_alone = quorum.voter_set.is_only_voter(quorum.own)
        if (now_ms < role.election_at_ms and not is_alone) or quorum.is_stopping:
            return max(rules_leading.poll_resigned(quorum, role, now_ms), now_ms + 1)
        if quorum.is_voter:
            rules_elections.stand(quorum, now_ms)
        else:
            quorum.become_unattached(quorum.epoch + 1, now_ms)
        return now_ms
