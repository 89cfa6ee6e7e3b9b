"""Requests served by the quorum (Raft) rules: the response is sent once the resulting state is
durable.
"""

from typing import TYPE_CHECKING

from kraftsim.raft.old_versions import fitted_response
from kraftsim.server.call import Answer, Call, Deferred

if TYPE_CHECKING:
    from kraftsim.server.controller import Controller


def ask_quorum(controller: "Controller", call: Call) -> Answer | Deferred:
    """Pass a request to the quorum."""
    later = Deferred()
    controller.raft.ask(
        call.body, lambda body: later.complete_with(lambda: fitted_response(body, call.api_version))
    )
    return later if later.answer is None else later.answer
