"""AddRaftVoter (80): adds a voter to the quorum.

Source: KIP-853, org.apache.kafka.raft.internals.AddVoterHandler.
"""

from typing import TYPE_CHECKING

from kraftsim.raft.quorum_requests import ask_quorum
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k80_add_raft_voter import AddRaftVoterResponse

if TYPE_CHECKING:
    from kraftsim.server.controller import Controller


def handle(controller: "Controller", call: Call) -> Answer | Deferred:
    """Answer when the new voter set is committed, or with an error."""
    return ask_quorum(controller, call)


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return AddRaftVoterResponse(error_code=error)


HANDLER: "Handler[Controller]" = Handler(key=ApiKey.ADD_RAFT_VOTER, handle=handle, refuse=_refuse)
