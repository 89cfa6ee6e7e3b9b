"""AddRaftVoter (80): adds a voter to the quorum.

Source: KIP-853, org.apache.kafka.raft.internals.AddVoterHandler.
"""

from kraftsim.raft.quorum_requests import QuorumMember, ask_quorum
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k80_add_raft_voter import AddRaftVoterResponse


def handle(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """Answer when the new voter set is committed, or with an error."""
    return ask_quorum(controller, call)


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return AddRaftVoterResponse(error_code=error)


HANDLER: Handler[QuorumMember] = Handler(key=ApiKey.ADD_RAFT_VOTER, handle=handle, refuse=_refuse)
