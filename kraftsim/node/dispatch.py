"""From a frame to the handler that serves it, and what becomes of a frame that no handler serves.

Source: kafka.server.KafkaApis.handle, org.apache.kafka.common.requests.RequestContext.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from kraftsim.node.api_offer import ApiOffer
from kraftsim.node.call import Answer, Call, Closing, Deferred, Handler
from kraftsim.node.connection import ServerConnection
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.requests import RequestHead, decode_request, read_request_head

N = TypeVar("N")


class Route(Generic[N]):
    """The handler of one API and the versions in which it may be asked; both ends are inside."""

    __slots__ = ("first_version", "handle", "last_version", "refuse")

    def __init__(self, handler: Handler[N], first_version: int, last_version: int) -> None:
        self.first_version = first_version
        self.last_version = last_version
        self.handle = handler.handle
        self.refuse = handler.refuse


class Dispatcher(Generic[N]):
    """Serves the frames of a node of kind N. One for all listeners of a node: what is offered depends on the kind of node only."""

    def __init__(self, node: N, handlers: Iterable[Handler[N]], offer: ApiOffer) -> None:
        self._node = node
        self._offer = offer
        self._routes: dict[int, Route[N]] = {
            int(handler.key): Route(handler, *offer.served[handler.key]) for handler in handlers if handler.key in offer.served
        }

    read_head = staticmethod(read_request_head)
    """Reads the header of a frame. Raises MalformedMessage, or UnsupportedApi for a key that nobody knows."""

    def serve(self, head: RequestHead, frame: bytes, connection: ServerConnection) -> Answer | Deferred:
        """Hand the request to its handler. Raises MalformedMessage for a body that cannot be read."""
        route = self._routes.get(head.api_key)
        if route is None or not route.first_version <= head.api_version <= route.last_version:
            return self._not_offered(head, route)
        call = Call(head, decode_request(head, frame), connection, connection.listener)
        try:
            return route.handle(self._node, call)
        except (AssertionError, MalformedMessage):
            raise
        except Exception as unforeseen:  # the top of a request: Kafka answers what it did not foresee with error -1 and goes on
            return _unforeseen(route.refuse, call, unforeseen)

    def _not_offered(self, head: RequestHead, route: Route[N] | None) -> Answer:
        if route is None:
            return Closing(f"api key {head.api_key} is not offered on this listener")
        if head.api_key == ApiKey.API_VERSIONS and head.api_version > route.last_version:
            return self._offer.unsupported_version_answer()
        return Closing(f"api key {head.api_key} is offered in versions {route.first_version} to {route.last_version}, not {head.api_version}")


def _unforeseen(refuse: Callable[[Call, ErrorCode], Answer] | None, call: Call, unforeseen: Exception) -> Answer:
    reason = f"the handler failed: {type(unforeseen).__name__}: {unforeseen}"
    if refuse is None:
        return Closing(reason)
    call.connection.note_refused(call.head, reason, action="answered")
    return refuse(call, ErrorCode.UNKNOWN_SERVER_ERROR)
