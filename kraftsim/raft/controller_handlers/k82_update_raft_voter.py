"""UpdateRaftVoter (82): updates the endpoints and supported kraft.version of a voter.

Source: KIP-853, org.apache.kafka.raft.internals.UpdateVoterHandler.
"""

from kraftsim.raft.quorum_requests import QuorumMember, ask_quorum
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k82_update_raft_voter import UpdateRaftVoterResponse


def handle(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """Answer as soon as the new voter set is written."""
    return ask_quorum(controller, call)


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return UpdateRaftVoterResponse(error_code=error)


HANDLER: Handler[QuorumMember] = Handler(
    key=ApiKey.UPDATE_RAFT_VOTER, handle=handle, refuse=_refuse
)
