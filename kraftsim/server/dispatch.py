"""Request dispatch: from a frame to the handler of its API; and what happens to frames that no
handler serves.

Two ways lead to a handler, and they must give the same responses. The short one (`serve_run`) is
for ordinary frames: it serves many at a time, in the buffer that they were received into, in one
loop with everything in local variables, because it runs for every frame of a node. The long one
(`serve`) is for everything else: the frame is copied, its header parsed, and the reason found why
it is not ordinary. The short way therefore never refuses anything. It stops before the first frame
that it cannot serve, and returns its position; the connection cuts that frame out, and the long way
examines it. So each error is produced in one place.

A frame is ordinary if its API is served in its version, its header is of the usual form, it is
complete, it has the client id of the frames before it (compared as bytes, not decoded;
`ClientNames`), it is not too large to be served in one turn, and its body can be decoded and does
not extend beyond the frame. Bytes behind the body are ignored, as in Kafka. `FrameRoutes` finds the
code of API and version by one lookup of the four bytes that hold both; unknown ones are not cached,
or a client could fill memory with four billion keys.

What a handler may do. It returns a response, `NoAnswer`, `Closing`, or a `Deferred`; it is
synchronous. The position moves behind a frame before its handler runs, so a frame that fails is not
served again. Exceptions are of three kinds. An AssertionError means that the node's state is wrong:
the node stops. MalformedMessage means that the request cannot be parsed: the connection closes.
Anything else is unforeseen: the client gets UNKNOWN_SERVER_ERROR in the form of the API
(`Handler.refuse`), as Kafka's handlers do, and if even that fails, the connection closes. Nothing
that one client sends may cost another one its response.

Order. The dispatcher keeps none: the connection does, by not being ready. After each response the
loop looks at `is_ready`, and leaves when the response was deferred, the client throttled, or the
turn used up. Responses of fixed size, such as those of Heartbeat, take a shortcut: they are packed
and appended without `give`, and do not look at the clock, which would be a noticeable part of their
cost. They look at `pauses`: a quota may have muted the connection, and then its later frames wait.

Fairness between requests. What a frame costs is bounded by its size: a request below
`LARGE_REQUEST_BYTES` is served in one turn. There are two exceptions. A Produce frame is large
because of its records, which cost little (`FRAME_BYTES_MAX_OF`; a handler that must scan them does
so in a thread). A short request may ask for many rows: if its `Slices` have weights, it is weighed
from `WEIGHED_REQUEST_BYTES` on, before it is served. What is too large for a turn becomes a
`LargeRequest`: decoded in a thread, served in slices if its entries are independent, one slice in a
turn of the loop for all large requests of the node together (`Turns`). Slices have a fixed number
of entries and do not depend on a clock, so that a seed gives the same run.

Versions. Kafka closes the connection for an API or a version that it does not serve, with one
exception: ApiVersions in a version that is too high is answered in version 0, so that the client
can choose another. `ApiOffer` has the versions, by release and listener.

Authentication and rights are in front of the dispatcher and behind it: a `SaslGate` has the same
interface (`FrameServer`) and passes nothing on before the client is authenticated; guards are
wrapped around the handlers when the table is built (`security/rights`), so no request can miss
them.

Invariants. Both ways call the same `Handler.handle`. A frame is served once or refused once. A
response has the correlation id and the version of its request. The short way changes no state
before it has decided to serve a frame.

Traps. A run must end at a client that was just muted, even if its responses are of fixed size
(KIP-219). A body whose array is longer than the frame decodes into the bytes of the next request,
which lie behind it in the same buffer: hence the check of `body_end`. The limit of frame size must
hold before anything is decoded, also for a client whose limit is lower because it is not
authenticated (`frame_bytes_max` in `serve_run`). A response that cannot be encoded fails in `give`,
with its event, and not in the shortcut.
Source: kafka.server.KafkaApis.handle, org.apache.kafka.common.requests.RequestContext.
"""

import sys
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, Generic, TypeVar, cast

from kraftsim.server.api_offer import ApiOffer
from kraftsim.server.call import Answer, Call, Closing, Deferred, Handler, reason_of
from kraftsim.server.frame_server import ServedConnection
from kraftsim.server.inbox import CLIENT_ID_POSITION, Buffer
from kraftsim.server.large_requests import LargeRequest
from kraftsim.server.slices import LARGE_REQUEST_BYTES
from protocol.api_keys import ApiKey
from protocol.codec.choice import is_interpreted
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.requests import RequestHead, decode_request, read_request_head, route_of
from protocol.schema import Message

N = TypeVar("N")

FRAME_START = Struct(">iIi").unpack_from
"""Frame size, API key and version as one number, correlation id."""
SIZE_BYTES = 4
HEAD_BYTES_MIN = 10
FRAME_BYTES_MIN = SIZE_BYTES + HEAD_BYTES_MIN
FRAME_BYTES_MAX_OF: Final = {int(ApiKey.PRODUCE): sys.maxsize}
"""The maximum size of a frame that is served in one turn, if its size does not bound its
entries.
"""


class DispatchRoute(Generic[N]):
    """The handler of one API and its supported versions; both ends are inclusive."""

    __slots__ = ("first_version", "frame_bytes_max", "handle", "last_version", "refuse", "slices")

    def __init__(self, handler: Handler[N], first_version: int, last_version: int) -> None:
        self.first_version = first_version
        self.last_version = last_version
        self.handle = handler.handle
        self.refuse = handler.refuse
        self.slices = handler.slices
        least = (
            LARGE_REQUEST_BYTES
            if self.slices is None
            else min(self.slices.request_bytes_max, LARGE_REQUEST_BYTES)
        )
        self.frame_bytes_max = FRAME_BYTES_MAX_OF.get(handler.key, least)
        """The maximum size of a frame that is served in one turn, whatever it contains."""


class FrameRoute(Generic[N]):
    """Serves the frames of one API and version, in a loop with everything in local variables: it
    runs for every frame.
    """

    __slots__ = (
        "_answer_bytes",
        "_api_key",
        "_api_version",
        "_decode",
        "_fixed_class",
        "_frame_bytes_max",
        "_handle",
        "_header_version",
        "_pack_answer",
        "_refuse",
    )

    def __init__(self, route: DispatchRoute[N], api_key: int, api_version: int) -> None:
        codecs = route_of(api_key, api_version)
        self._api_key = api_key
        self._api_version = api_version
        self._frame_bytes_max = route.frame_bytes_max
        self._handle = route.handle
        self._refuse = route.refuse
        self._decode = cast(Callable[[Buffer, int], tuple[Message, int]], codecs.request.decoder())
        self._header_version = codecs.request_header_version
        self._pack_answer = codecs.pack_response or _no_packing
        self._answer_bytes = codecs.response_size
        self._fixed_class = None if codecs.pack_response is None else codecs.response.cls
        """The response class, if all responses have the same size."""

    def serve(
        self, node: N, connection: ServedConnection, buffer: Buffer, position: int, end: int
    ) -> int:
        """Serve consecutive frames of this API and version with the same client id; return the
        position of the first other frame.

        A decoded body is accepted unless it extends beyond its frame.
        """
        client, body_ahead, client_id = connection.client_of(buffer, position, self._header_version)
        ends_turn = connection.ends_turn
        new, append, has_frame_events = (
            object.__new__,
            connection.out.append,
            connection.has_frame_events,
        )
        api_key, api_version, decode, handle = (
            self._api_key,
            self._api_version,
            self._decode,
            self._handle,
        )
        fixed_class, pack_answer, answer_bytes = (
            None if has_frame_events else self._fixed_class,
            self._pack_answer,
            self._answer_bytes,
        )
        key_and_version, last_start, frame_bytes_max = (
            api_key << 16 | api_version,
            end - FRAME_BYTES_MIN,
            self._frame_bytes_max,
        )
        while position <= last_start:
            size, asked, correlation_id = FRAME_START(buffer, position)
            frame_end = position + SIZE_BYTES + size
            body_position = position + body_ahead
            if (
                asked != key_and_version
                or buffer[position + CLIENT_ID_POSITION : body_position] != client
                or frame_end > end
            ):
                break
            if size > frame_bytes_max:
                break
            try:
                body, body_end = decode(buffer, body_position)
            except MalformedMessage:
                break
            if body_end > frame_end:
                break
            call = new(Call)
            call.api_key = api_key
            call.api_version = api_version
            call.correlation_id = correlation_id
            call.client_id = client_id
            call.body = body
            call.connection = connection
            if has_frame_events:
                connection.emit_received(call, size)
            position = frame_end
            try:
                answer = handle(node, call)
            except (AssertionError, MalformedMessage) as failure:
                connection.end_with(failure, call)
                break
            # top-level handler: as in Kafka an unexpected exception is answered with error -1
            except Exception as unforeseen:
                answer = _unforeseen(self._refuse, call, unforeseen)
            if type(answer) is fixed_class and connection.close_reason is None:
                try:
                    append(pack_answer(answer_bytes, correlation_id, answer))
                except Exception:  # `give` fails on this answer, too, and reports it
                    pass
                else:
                    if connection.pauses:
                        break  # a quota throttles the client: its later frames wait
                    # such requests take microseconds: all that come in one read take less than a
                    # few turns
                    continue
            connection.give(answer, call)
            if position <= last_start and (not connection.is_ready or ends_turn()):
                break
        return position


class FrameRoutes(dict[int, FrameRoute[N] | None]):
    """From API key and version, as FRAME_START reads them, to the route, created on first use.

    None for frames that are not served from a run: with `--codec construct` all.
    """

    def __init__(self, routes: dict[int, DispatchRoute[N]]) -> None:
        super().__init__()
        self._routes = routes

    def __missing__(self, key_and_version: int) -> FrameRoute[N] | None:
        api_key, api_version = key_and_version >> 16, key_and_version & 0xFFFF
        route = None if is_interpreted() else self._routes.get(api_key)
        if (
            route is None
            or not route.first_version <= api_version <= route.last_version
            or not route_of(api_key, api_version).request_header_version
        ):
            return None  # and not cached: there are four billion keys
        found = self[key_and_version] = FrameRoute(route, api_key, api_version)
        return found


class Dispatcher(Generic[N]):
    """Serves the frames of a node of kind N.

    One for all listeners of a node: the supported APIs depend on the kind of node only.
    """

    def __init__(self, node: N, handlers: Iterable[Handler[N]], offer: ApiOffer) -> None:
        self._node = node
        self._offer = offer
        self._routes: dict[int, DispatchRoute[N]] = {
            int(handler.key): DispatchRoute(handler, *offer.served[handler.key])
            for handler in handlers
            if handler.key in offer.served
        }
        self._frame_routes = FrameRoutes(self._routes)

    read_head = staticmethod(read_request_head)
    """Parses the header of a frame.

    Raises MalformedMessage, or UnsupportedApi for an unknown API key.
    """

    def serve_run(
        self, connection: ServedConnection, buffer: Buffer, position: int, end: int
    ) -> int:
        """Serve the frames from `position` to `end` until one is incomplete or unusual, or the
        connection must wait; return its position.
        """
        routes, node = self._frame_routes, self._node
        if end - position > connection.frame_bytes_max:
            return position  # a frame may be too large
        while end - position >= FRAME_BYTES_MIN:
            route = routes[FRAME_START(buffer, position)[1]]
            if route is None:
                break
            served_to = route.serve(node, connection, buffer, position, end)
            if served_to == position:
                break
            position = served_to
            if position < end and not connection.is_ready:
                break
        return position

    def serve(
        self, head: RequestHead, frame: bytes, connection: ServedConnection
    ) -> Answer | Deferred:
        """Pass the request to its handler. Raises MalformedMessage for an undecodable body."""
        route = self._routes.get(head.api_key)
        if route is None or not route.first_version <= head.api_version <= route.last_version:
            return self._not_offered(head, route)
        size = len(frame)
        if size > FRAME_BYTES_MAX_OF.get(head.api_key, LARGE_REQUEST_BYTES):
            return self._serve_large(route, head, frame, connection)
        call = Call(head, decode_request(head, frame), connection)
        try:
            if (
                size > route.frame_bytes_max
                and route.slices is not None
                and not route.slices.is_small(call.body, self._node)
            ):
                return self._serve_large(route, head, frame, connection)
            return route.handle(self._node, call)
        except (AssertionError, MalformedMessage):
            raise
        except Exception as unforeseen:  # as above
            return _unforeseen(route.refuse, call, unforeseen)

    def _serve_large(
        self, route: DispatchRoute[N], head: RequestHead, frame: bytes, connection: ServedConnection
    ) -> Deferred:
        """Serve a request with many entries in several event-loop turns."""
        large = LargeRequest(
            head,
            frame,
            connection,
            self._node,
            lambda call: route.handle(self._node, call),
            route.slices,
            lambda call, unforeseen: _unforeseen(route.refuse, call, unforeseen),
        )
        connection.spawn(large.run, "serve-large-request")
        return large.later

    def refuse_call(self, call: Call, error: ErrorCode) -> Answer:
        """The same for a decoded request."""
        route = self._routes.get(call.api_key)
        if route is None or route.refuse is None:
            return Closing(f"api key {call.api_key} has no answer for {error.name}")
        return route.refuse(call, error)

    def refuse(
        self, head: RequestHead, frame: bytes, connection: ServedConnection, error: ErrorCode
    ) -> Answer:
        """Return the error response of an API; if it has none, close the connection."""
        route = self._routes.get(head.api_key)
        if (
            route is None
            or route.refuse is None
            or not route.first_version <= head.api_version <= route.last_version
        ):
            return Closing(f"api key {head.api_key} is out of place: {error.name}")
        return route.refuse(Call(head, decode_request(head, frame), connection), error)

    def _not_offered(self, head: RequestHead, route: DispatchRoute[N] | None) -> Answer:
        if route is None:
            return Closing(f"api key {head.api_key} is not offered on this listener")
        if head.api_key == ApiKey.API_VERSIONS:  # too high, or negative
            return self._offer.unsupported_version_answer()
        return Closing(
            f"api key {head.api_key} is offered in versions {route.first_version} to "
            f"{route.last_version}, not {head.api_version}"
        )


def _no_packing(*_: object) -> bytes:
    raise AssertionError("only answers of one size are packed")


def _unforeseen(
    refuse: Callable[[Call, ErrorCode], Answer] | None, call: Call, unforeseen: Exception
) -> Answer:
    reason = f"the handler failed: {reason_of(unforeseen)}"
    if refuse is None:
        return Closing(reason)
    try:
        refused = refuse(call, ErrorCode.UNKNOWN_SERVER_ERROR)
    except Exception as again:
        return Closing(f"{reason}; so did the refusal: {reason_of(again)}")
    call.connection.emit_refused(call, reason, action="answered")
    return refused
