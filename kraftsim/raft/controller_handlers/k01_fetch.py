"""Fetch (1) on a controller: voters and observers of the quorum fetch the metadata log.
Source: KIP-595, KafkaRaftClient.handleFetchRequest.
"""

from typing import Protocol

from kraftsim.partitions.fetch_responses import refused_fetch
from kraftsim.raft.quorum_requests import WaitingFetches
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.messages.k01_fetch import FetchRequest


class FetchingController(Protocol):
    """A controller whose log is fetched."""

    @property
    def fetches(self) -> WaitingFetches:
        """The requests that wait for records."""
        ...


def handle(controller: FetchingController, call: Call) -> Answer | Deferred:
    """Answer immediately, or when the fetch can be completed."""
    request = call.body
    assert isinstance(request, FetchRequest), "dispatch decodes by API key"
    return controller.fetches.fetch(request, call.api_version)


HANDLER: Handler[FetchingController] = Handler(
    key=ApiKey.FETCH, handle=handle, refuse=refused_fetch
)
