"""Requests of the metadata quorum: elections, fetches of the log and of snapshots, and voters."""

from typing import Protocol

from kraftsim.partitions.fetch_responses import refused_fetch
from kraftsim.raft import rules_serving
from kraftsim.raft.quorum_requests import QuorumMember, WaitingFetches, ask_quorum
from kraftsim.raft.rules_messages import fitted_response
from kraftsim.raft.rules_serving import describe_quorum
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchRequest
from protocol.messages.k52_vote import VoteResponse
from protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochResponse
from protocol.messages.k54_end_quorum_epoch import EndQuorumEpochResponse
from protocol.messages.k55_describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.k59_fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.messages.k80_add_raft_voter import AddRaftVoterResponse
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterResponse
from protocol.messages.k82_update_raft_voter import UpdateRaftVoterResponse

# --------------------------------------------------------------------------------------------------
# Requests of the metadata quorum's elections: a candidate asks, a leader begins and ends its epoch
#
# Every voter answers them, the active controller or not. The answer is sent when what it says is on
# disk (`kraftsim.raft.quorum_requests.ask_quorum`).


def handle_vote(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """Vote (52): a candidate requests a vote or a pre-vote of this voter.

    Answer once the vote is durable.

    Source: KIP-595, KIP-996, org.apache.kafka.raft.KafkaRaftClient.handleVoteRequest.
    """
    return ask_quorum(controller, call)


def _refuse_vote(call: Call, error: ErrorCode) -> Answer:
    return VoteResponse(error_code=error)


VOTE: Handler[QuorumMember] = Handler(key=ApiKey.VOTE, handle=handle_vote, refuse=_refuse_vote)


def handle_begin_quorum_epoch(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """BeginQuorumEpoch (53): a new leader announces its epoch.

    Answer once the transition to follower is durable.

    Source: KIP-595, org.apache.kafka.raft.KafkaRaftClient.handleBeginQuorumEpochRequest.
    """
    return ask_quorum(controller, call)


def _refuse_begin_quorum_epoch(call: Call, error: ErrorCode) -> Answer:
    return BeginQuorumEpochResponse(error_code=error)


BEGIN_QUORUM_EPOCH: Handler[QuorumMember] = Handler(
    key=ApiKey.BEGIN_QUORUM_EPOCH,
    handle=handle_begin_quorum_epoch,
    refuse=_refuse_begin_quorum_epoch,
)


def handle_end_quorum_epoch(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """EndQuorumEpoch (54): a leader resigns, and names its preferred successors.

    Answer; an election starts soon.

    Source: KIP-595, org.apache.kafka.raft.KafkaRaftClient.handleEndQuorumEpochRequest.
    """
    return ask_quorum(controller, call)


def _refuse_end_quorum_epoch(call: Call, error: ErrorCode) -> Answer:
    return EndQuorumEpochResponse(error_code=error)


END_QUORUM_EPOCH: Handler[QuorumMember] = Handler(
    key=ApiKey.END_QUORUM_EPOCH, handle=handle_end_quorum_epoch, refuse=_refuse_end_quorum_epoch
)


# --------------------------------------------------------------------------------------------------
# Requests by which replicas of the metadata log get its records, or a snapshot in their place


class FetchingController(Protocol):
    """A controller whose log is fetched."""

    @property
    def fetches(self) -> WaitingFetches:
        """The requests that wait for records."""
        ...


def handle_fetch(controller: FetchingController, call: Call) -> Answer | Deferred:
    """Fetch (1) on a controller: voters and observers of the quorum fetch the metadata log.

    Answer immediately, or when the fetch can be completed.

    Source: KIP-595, KafkaRaftClient.handleFetchRequest.
    """
    request = call.body
    assert isinstance(request, FetchRequest), "dispatch decodes by API key"
    return controller.fetches.fetch(request, call.api_version)


FETCH: Handler[FetchingController] = Handler(
    key=ApiKey.FETCH, handle=handle_fetch, refuse=refused_fetch
)


def handle_fetch_snapshot(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """FetchSnapshot (59): a replica whose log end offset is below this log's start offset fetches a
    snapshot in chunks.

    Answer with a chunk, or with an error.

    Source: KIP-630, org.apache.kafka.raft.KafkaRaftClient.handleFetchSnapshotRequest.
    """
    request = call.body
    assert isinstance(request, FetchSnapshotRequest), "dispatch decodes by API key"
    later = Deferred()
    controller.raft.when_durable(
        lambda: later.complete_with(
            lambda: fitted_response(_answer(controller, request), call.api_version)
        )
    )
    return later if later.answer is None else later.answer


def _answer(controller: QuorumMember, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    raft = controller.raft
    outcome = rules_serving.snapshot_outcome(raft.quorum, request, raft.now_ms())
    if isinstance(outcome, FetchSnapshotResponse):
        return outcome
    snapshots = raft.store.snapshots
    size = snapshots.size_bytes(outcome.snapshot)
    if outcome.position >= size:
        return rules_serving.refused_snapshot()
    records = snapshots.read_piece(
        outcome.snapshot,
        outcome.position,
        min(max(outcome.max_bytes, 0), raft.quorum.settings.fetch_snapshot_max_bytes),
    )
    return rules_serving.snapshot_response(raft.quorum, outcome, size=size, records=records)


def _refuse_fetch_snapshot(call: Call, error: ErrorCode) -> Answer:
    return FetchSnapshotResponse(error_code=error)


FETCH_SNAPSHOT: Handler[QuorumMember] = Handler(
    key=ApiKey.FETCH_SNAPSHOT, handle=handle_fetch_snapshot, refuse=_refuse_fetch_snapshot
)


# --------------------------------------------------------------------------------------------------
# Requests about the voters of the metadata quorum: describe them, add, remove and update one
#
# Only the leader serves them; one change of the voter set is in progress at a time (KIP-853).


def handle_describe_quorum(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """DescribeQuorum (55): voters and observers of the quorum, and their log end offsets.

    Answer immediately; only the leader can.

    Source: KIP-595, KIP-836, KIP-853,
    org.apache.kafka.raft.KafkaRaftClient.handleDescribeQuorumRequest.
    """
    request = call.body
    assert isinstance(request, DescribeQuorumRequest), "dispatch decodes by API key"
    raft = controller.raft
    return fitted_response(
        describe_quorum(raft.quorum, request, raft.now_ms(), raft.wall_ms()), call.api_version
    )


def _refuse_describe_quorum(call: Call, error: ErrorCode) -> Answer:
    return DescribeQuorumResponse(error_code=error)


DESCRIBE_QUORUM: Handler[QuorumMember] = Handler(
    key=ApiKey.DESCRIBE_QUORUM, handle=handle_describe_quorum, refuse=_refuse_describe_quorum
)


def handle_add_raft_voter(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """AddRaftVoter (80): adds a voter to the quorum.

    Answer when the new voter set is committed, or with an error.

    Source: KIP-853, org.apache.kafka.raft.internals.AddVoterHandler.
    """
    return ask_quorum(controller, call)


def _refuse_add_raft_voter(call: Call, error: ErrorCode) -> Answer:
    return AddRaftVoterResponse(error_code=error)


ADD_RAFT_VOTER: Handler[QuorumMember] = Handler(
    key=ApiKey.ADD_RAFT_VOTER, handle=handle_add_raft_voter, refuse=_refuse_add_raft_voter
)


def handle_remove_raft_voter(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """RemoveRaftVoter (81): removes a voter from the quorum.

    Answer when the new voter set is committed, or with an error.

    Source: KIP-853, org.apache.kafka.raft.internals.RemoveVoterHandler.
    """
    return ask_quorum(controller, call)


def _refuse_remove_raft_voter(call: Call, error: ErrorCode) -> Answer:
    return RemoveRaftVoterResponse(error_code=error)


REMOVE_RAFT_VOTER: Handler[QuorumMember] = Handler(
    key=ApiKey.REMOVE_RAFT_VOTER, handle=handle_remove_raft_voter, refuse=_refuse_remove_raft_voter
)


def handle_update_raft_voter(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """UpdateRaftVoter (82): updates the endpoints and supported kraft.version of a voter.

    Answer as soon as the new voter set is written.

    Source: KIP-853, org.apache.kafka.raft.internals.UpdateVoterHandler.
    """
    return ask_quorum(controller, call)


def _refuse_update_raft_voter(call: Call, error: ErrorCode) -> Answer:
    return UpdateRaftVoterResponse(error_code=error)


UPDATE_RAFT_VOTER: Handler[QuorumMember] = Handler(
    key=ApiKey.UPDATE_RAFT_VOTER, handle=handle_update_raft_voter, refuse=_refuse_update_raft_voter
)


HANDLERS = (
    VOTE,
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH,
    FETCH_SNAPSHOT,
    DESCRIBE_QUORUM,
    ADD_RAFT_VOTER,
    REMOVE_RAFT_VOTER,
    UPDATE_RAFT_VOTER,
)
