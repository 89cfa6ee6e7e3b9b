"""Vote (52): a candidate requests a vote or a pre-vote of this voter.

Source: KIP-595, KIP-996, org.apache.kafka.raft.KafkaRaftClient.handleVoteRequest.
"""

from kraftsim.raft.quorum_requests import QuorumMember, ask_quorum
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k52_vote import VoteResponse


def handle(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """Answer once the vote is durable."""
    return ask_quorum(controller, call)


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return VoteResponse(error_code=error)


HANDLER: Handler[QuorumMember] = Handler(key=ApiKey.VOTE, handle=handle, refuse=_refuse)
