"""Requests served by the quorum (Raft) rules: the response is sent once the resulting state is
durable.
"""

from typing import Protocol

from kraftsim.raft.old_versions import fitted_response
from kraftsim.raft.raft_node import RaftNode
from kraftsim.server.call import Answer, Call, Deferred


class QuorumMember(Protocol):
    """A node with a replica of the metadata log that votes."""

    @property
    def raft(self) -> RaftNode:
        """The replica."""
        ...


def ask_quorum(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """Pass a request to the quorum."""
    later = Deferred()
    controller.raft.ask(
        call.body, lambda body: later.complete_with(lambda: fitted_response(body, call.api_version))
    )
    return later if later.answer is None else later.answer
