"""Requests of the metadata quorum's elections: a candidate asks, a leader begins and ends its
epoch.

Every voter answers them, the active controller or not. The answer is sent when what it says is on
disk (`kraftsim.raft.quorum_requests.ask_quorum`).
"""

from kraftsim.raft.quorum_requests import QuorumMember, ask_quorum
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k52_vote import VoteResponse
from protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochResponse
from protocol.messages.k54_end_quorum_epoch import EndQuorumEpochResponse


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


HANDLERS = (
    VOTE,
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
)
