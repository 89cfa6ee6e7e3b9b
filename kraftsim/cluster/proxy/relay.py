"""One connection through the proxy: a near end, from which a client or a node connected, and a far
end at the node itself.

The source is known by its address, where every node has one of its own, and else by the client id
of the first request: nodes use their id as the client id, and other clients anything else.
"""

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from socket import SO_LINGER, SOL_SOCKET
from typing import TYPE_CHECKING, Final, cast

from kraftsim.cluster.proxy.control_messages import Post
from kraftsim.cluster.proxy.flow import Flow
from kraftsim.cluster.proxy.frame_stream import FrameStream
from kraftsim.cluster.proxy.request_gate import SIZE_BYTES, RequestGate
from kraftsim.lab.faults.field import CLIENTS
from protocol.frames import SOCKET_REQUEST_MAX_BYTES

if TYPE_CHECKING:
    from kraftsim.cluster.proxy.proxy import Proxy, RelayFrames

NO_LINGER: Final = struct.pack("ii", 1, 0)
CLIENT_ID_AT: Final = 12
"""The position of the client id in a request: behind size, API key, version and correlation id
(request header 1 and 2).
"""
NAME_BYTES_MAX: Final = 256


class Relay:
    """Both directions of a connection. It connects to the node only once the link permits that."""

    def __init__(self, proxy: "Proxy", post: Post) -> None:
        self._proxy = proxy
        self._loop = proxy.loop
        self.post = post
        self.number = proxy.next_connection()
        self.source = ""
        """The name of the connecting side; empty until it is known."""
        self.near = NearEnd(self)
        self.far = FarEnd(self)
        self.requests: Flow | None = None
        self.responses: Flow | None = None
        self.gate: RequestGate | None = None
        self.frames: RelayFrames | None = None
        """Gets all bytes first, if frames are read for more than faults."""
        self.when_over: Callable[[], object] | None = None
        self.is_unanswered = False
        """Whether the last bytes were those of a request: it awaits its answer."""
        self._has_begun = False
        self._is_reset = False
        self._unread = b""

    @property
    def is_busy(self) -> bool:
        """Whether a request waits for its answer, as far as the proxy can see, or bytes wait
        here.
        """
        flows = [flow for flow in (self.requests, self.responses) if flow is not None]
        return self.is_unanswered or any(flow.queued_bytes for flow in flows)

    # The near end: identify the source
    # ----------------------------------------------------------------------------------------------

    def dialled(self, host: str) -> None:
        """The near end is connected, from an address."""
        self._proxy.relays[self.number] = self
        name = self._proxy.name_at(host)
        if name is not None:
            self._recognised(name)

    def introduced(self, data: bytes) -> None:
        """The near end has sent bytes before it is identified."""
        self._unread += data
        name = client_id_of(self._unread) if self.post.speaks_kafka else CLIENTS
        if name is not None:
            self._recognised(self._proxy.name_of_client(name))

    def given_up(self) -> None:
        """The near end closes the connection."""
        self._proxy.given_up(self.number)

    def vanished_unknown(self) -> None:
        """The near end disconnected before it was identified."""
        self._forget()

    def _recognised(self, source: str) -> None:
        self.source = source
        proxy, node = self._proxy, self.post.name
        to_node, from_node = (
            proxy.conditions.state(source, node),
            proxy.conditions.state(node, source),
        )
        refusing = [link for link in (to_node, from_node) if link.refuses]
        if refusing:
            for link in refusing:
                link.touch_connect(self.number)
            self.reset()
            return
        self.requests = Flow(self, to_node, self._loop, proxy.random)
        self.responses = Flow(self, from_node, self._loop, proxy.random)
        self.requests.source = self.responses.target = self.near.transport
        if proxy.follows_frames and self.post.speaks_kafka:
            self._follow_frames(self.requests, self.responses)
        if proxy.read_frames is not None:
            self.frames = proxy.read_frames(self, self.requests, self.responses)
        elif proxy.judges_requests and self.post.speaks_kafka:
            self.gate = proxy.gate(self, to_node=self.requests.feed, to_client=self.responses.feed)
        waiting = [
            link
            for link in (to_node, from_node)
            if link.ignores or (link.holds and link is to_node)
        ]
        for link in waiting:
            link.touch_connect(self.number)
        if not waiting:
            self.begin()
        unread, self._unread = self._unread, b""
        if unread:
            self.is_unanswered = True
            self.feed_request(unread)

    def feed_request(self, data: bytes) -> None:
        """Pass on what a known near end has sent."""
        assert self.requests is not None, "the near end is known"
        if self.frames is not None:
            self.frames.feed_request(data)
        else:
            (self.requests.feed if self.gate is None else self.gate.feed_request)(data)

    def _follow_frames(self, requests: Flow, responses: Flow) -> None:
        api_keys: dict[int, int] = {}
        for flow, is_response in ((requests, False), (responses, True)):
            flow.frames = FrameStream(
                is_response=is_response,
                names=(self.source, self.post.name, self.number),
                asked=api_keys,
                watches=self._proxy.watches,
                send=flow.send,
                cut=partial(flow.end, "reset"),
                on_due=partial(self._proxy.hold, self.post, flow),
            )

    # The far end: connect when the link permits
    # ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Connect to the node, once, unless a condition leaves new connections unanswered at the
        moment.
        """
        if not self._has_begun and not any(
            flow is not None and flow.link.ignores for flow in (self.requests, self.responses)
        ):
            self._has_begun = True
            self._proxy.spawn(self._connect())

    async def _connect(self) -> None:
        try:
            tls = self._proxy.node_tls
            await self._loop.create_connection(
                lambda: self.far,
                self.post.behind_host,
                self.post.behind_port,
                ssl=tls,
                server_hostname=self.post.behind_host if tls is not None else None,
            )
        except OSError:
            self.reset()
            return
        if self._is_reset or self.requests is None or self.responses is None:
            self.reset()
            return
        self.requests.target = self.responses.source = self.far.transport
        self.requests.pump()

    def halve(self, *, near_believes: bool, on_bytes: Callable[[int], None]) -> bool:
        """Make the connection half-open. Return whether it had two ends."""
        near, far = self.near.transport, self.far.transport
        if near is None or far is None or self.requests is None or self.responses is None:
            return False
        kept, dropped = (
            (self.requests, self.responses) if near_believes else (self.responses, self.requests)
        )
        gone = self.far if near_believes else self.near
        gone.is_forgotten = True
        dropped.drop()
        kept.lead_nowhere(on_bytes)
        _break(far if near_believes else near)
        return True

    # Ends
    # ----------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Reset both ends: pending requests fail, and bytes in flight are lost."""
        self._is_reset = True
        for transport in (self.near.transport, self.far.transport):
            if transport is not None:
                _break(transport)
        self._forget()

    def finish(self, flow: Flow) -> None:
        """One side sends no more: so does the other, unless the connection carries nothing now."""
        end = partial(flow.end, "eof")
        gate = self.gate or self.frames
        if gate is None or not gate.keeps_end(end):
            end()

    def ended(self) -> None:
        """A direction has ended; after both of them the connection is closed."""
        if all(flow is None or flow.is_over for flow in (self.requests, self.responses)):
            for transport in (self.near.transport, self.far.transport):
                if transport is not None and not transport.is_closing():
                    transport.close()
            self._forget()

    def _forget(self) -> None:
        if self.gate is not None:
            self.gate.close()
        for flow in (self.requests, self.responses):
            if flow is not None:
                flow.drop()
        self._proxy.relays.pop(self.number, None)
        if self.when_over is not None:
            self.when_over()


class _End(asyncio.Protocol, ABC):
    """What both ends have in common: bytes go into one flow, and write back-pressure applies to the
    other.
    """

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.transport: asyncio.Transport | None = None
        self.is_forgotten = False
        """Whether the end of this side is hidden from the other one."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def eof_received(self) -> bool:
        """This side sends no more; the other direction may stay open."""
        flow = self._into()
        if flow is None:
            self._relay.vanished_unknown()
            return False
        self._relay.finish(flow)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The end is gone: bytes for it are discarded, and bytes that it sent are still
        delivered.
        """
        if self.is_forgotten:
            return
        into, out_of = self._into(), self._out_of()
        if into is None or out_of is None:
            self._relay.vanished_unknown()
            return
        out_of.drop()
        if into.is_over:
            self._relay.ended()
        else:
            into.end("eof" if exc is None else "reset")

    def pause_writing(self) -> None:
        """Writing to this end is paused."""
        flow = self._out_of()
        if flow is not None:
            flow.block()

    def resume_writing(self) -> None:
        """Writing to this end is resumed."""
        flow = self._out_of()
        if flow is not None:
            flow.unblock()

    @abstractmethod
    def _into(self) -> Flow | None:
        """Return the flow whose source is this end."""

    @abstractmethod
    def _out_of(self) -> Flow | None:
        """Return the flow whose target is this end."""


class NearEnd(_End):
    """The end from which the connection was opened."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Identify the client by its address.

        A client that reset the connection before `accept` has none.
        """
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        if address is None:
            self._relay.reset()
        else:
            self._relay.dialled(str(address[0]))

    def eof_received(self) -> bool:
        """Notify faults that wait for the client to give up."""
        self._relay.given_up()
        if self._relay.frames is not None:
            self._relay.frames.end_requests()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The same for a reset."""
        self._relay.given_up()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass requests on."""
        relay = self._relay
        relay.is_unanswered = True
        if relay.requests is not None:
            relay.feed_request(data)
        else:
            relay.introduced(data)

    def _into(self) -> Flow | None:
        return self._relay.requests

    def _out_of(self) -> Flow | None:
        return self._relay.responses


class FarEnd(_End):
    """The end at the node."""

    def data_received(self, data: bytes) -> None:
        """Pass answers on."""
        relay = self._relay
        relay.is_unanswered = False
        if relay.frames is not None:
            relay.frames.feed_response(data)
        elif relay.responses is not None:
            (relay.responses.feed if relay.gate is None else relay.gate.feed_response)(data)

    def eof_received(self) -> bool:
        """Pass what waits for the rest of its frame."""
        if self._relay.frames is not None:
            self._relay.frames.end_responses()
        return super().eof_received()

    def _into(self) -> Flow | None:
        return self._relay.responses

    def _out_of(self) -> Flow | None:
        return self._relay.requests


def _break(transport: asyncio.Transport) -> None:
    """Reset one end."""
    if not transport.is_closing():
        transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, NO_LINGER)
        transport.abort()


def client_id_of(begin: bytes) -> str | None:
    """Return the client id in the first bytes of a request; None while more bytes are needed,
    CLIENTS for bytes that are not a request, or one without a client id.
    """
    if len(begin) < SIZE_BYTES:
        return None
    frame_bytes = SIZE_BYTES + int.from_bytes(begin[:SIZE_BYTES], "big", signed=True)
    if not SIZE_BYTES <= frame_bytes <= SIZE_BYTES + SOCKET_REQUEST_MAX_BYTES:
        return CLIENTS
    missing = CLIENTS if len(begin) >= frame_bytes else None
    if len(begin) < CLIENT_ID_AT + 2:
        return missing
    size = int.from_bytes(begin[CLIENT_ID_AT : CLIENT_ID_AT + 2], "big", signed=True)
    if not 0 < size <= NAME_BYTES_MAX:
        return CLIENTS
    if len(begin) < CLIENT_ID_AT + 2 + size:
        return missing
    try:
        return begin[CLIENT_ID_AT + 2 : CLIENT_ID_AT + 2 + size].decode()
    except UnicodeDecodeError:
        return CLIENTS
