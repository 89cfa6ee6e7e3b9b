"""RemoveRaftVoter (81): removes a voter from the quorum.

Source: KIP-853, org.apache.kafka.raft.internals.RemoveVoterHandler.
"""

from kraftsim.raft.quorum_requests import QuorumMember, ask_quorum
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterResponse


def handle(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """Answer when the new voter set is committed, or with an error."""
    return ask_quorum(controller, call)


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return RemoveRaftVoterResponse(error_code=error)


HANDLER: Handler[QuorumMember] = Handler(
    key=ApiKey.REMOVE_RAFT_VOTER, handle=handle, refuse=_refuse
)
