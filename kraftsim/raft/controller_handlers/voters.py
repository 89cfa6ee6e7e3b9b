"""Requests about the voters of the metadata quorum: describe them, add, remove and update one.

Only the leader serves them; one change of the voter set is in progress at a time (KIP-853).
"""

from kraftsim.raft.quorum_requests import QuorumMember, ask_quorum
from kraftsim.raft.rules_messages import fitted_response
from kraftsim.raft.rules_serving import describe_quorum
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k55_describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.k80_add_raft_voter import AddRaftVoterResponse
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterResponse
from protocol.messages.k82_update_raft_voter import UpdateRaftVoterResponse


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
    DESCRIBE_QUORUM,
    ADD_RAFT_VOTER,
    REMOVE_RAFT_VOTER,
    UPDATE_RAFT_VOTER,
)
