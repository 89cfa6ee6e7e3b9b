"""Fetch (1) on a controller: voters and observers of the quorum fetch the metadata log.
Source: KIP-595, KafkaRaftClient.handleFetchRequest.
"""

from typing import TYPE_CHECKING

from kraftsim.partitions.refused_fetch import refused_fetch
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.messages.k01_fetch import FetchRequest

if TYPE_CHECKING:
    from kraftsim.server.controller import Controller


def handle(controller: "Controller", call: Call) -> Answer | Deferred:
    """Answer immediately, or when the fetch can be completed."""
    request = call.body
    assert isinstance(request, FetchRequest), "dispatch decodes by API key"
    return controller.fetches.fetch(request, call.api_version)


HANDLER: "Handler[Controller]" = Handler(key=ApiKey.FETCH, handle=handle, refuse=refused_fetch)
