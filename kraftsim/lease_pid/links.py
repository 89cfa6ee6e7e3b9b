"""Connections of lease_pid: the server side, and the side of a client or follower.

Requests of a connection are started and answered in order; several may be in flight.
Source: the lease_pid draft; Kafka's own connections.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Protocol, cast

from kraftsim.server.tasks import NodeTasks
from protocol.frames import FrameReader
from protocol.lease_pid.messages import (
    LATEST,
    LeaseApi,
    LeasedRequestHeader,
    build_request,
    build_response,
    correlation_id_of,
    parse_request,
    parse_response,
)
from protocol.malformed import MalformedMessage
from protocol.schema import Message


class RequestServer(Protocol):
    """The server that handles requests."""

    tasks: NodeTasks

    def begin(self, body: Message, link: "ServerLink") -> Coroutine[None, None, Message]:
        """Do the ordered part of a request immediately, and return the part that may wait."""
        ...

    def on_made(self, link: "ServerLink") -> None:
        """A client has connected."""
        ...

    def on_lost(self, link: "ServerLink") -> None:
        """A client has disconnected."""
        ...

    def flush_events(self) -> None:
        """Write pending events before a response is sent."""
        ...


class ServerLink(asyncio.Protocol):
    """The server side of a client connection."""

    def __init__(self, server: RequestServer) -> None:
        self._server = server
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._answers: deque[list[bytes]] = deque()
        """One slot per request in flight, filled when its response is ready."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport."""
        self._transport = cast(
            asyncio.Transport, transport
        )  # uvloop's transports are none by inheritance
        self._server.on_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Responses are dropped from now on."""
        self._transport = None
        self._server.on_lost(self)

    def data_received(self, data: bytes) -> None:
        """Start every complete request; malformed data closes the connection."""
        try:
            for frame in self._reader.feed(data):
                header, body = parse_request(frame)
                place: list[bytes] = []
                self._answers.append(place)
                self._server.tasks.spawn(
                    self._answer(header, place, self._server.begin(body, self)), "lease-request"
                )
        except MalformedMessage:
            self.abort()

    def abort(self) -> None:
        """Close immediately."""
        if self._transport is not None:
            self._transport.abort()

    async def _answer(
        self, header: LeasedRequestHeader, place: list[bytes], work: Coroutine[None, None, Message]
    ) -> None:
        frame = build_response(header.correlation_id, header.api_version, await work)
        place.append(len(frame).to_bytes(4) + frame)
        self._server.flush_events()
        while self._answers and self._answers[0]:
            [ready] = self._answers.popleft()
            if self._transport is not None:
                self._transport.write(ready)


class ClientLink(asyncio.Protocol):
    """A connection to a server.

    `send` passes the response, or the error, to a callback; `ask` waits for it.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._next_id = 0
        self._under_way: dict[int, tuple[int, int, Callable[[Message | OSError], None]]] = {}

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None

    @classmethod
    async def open(
        cls, client_id: str, host: str, port: int, timeout_seconds: float
    ) -> "ClientLink":
        """Connect. Raises OSError."""
        link = cls(client_id)
        async with asyncio.timeout(timeout_seconds):
            await asyncio.get_running_loop().create_connection(lambda: link, host, port)
        return link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all requests in flight."""
        self._transport = None
        lost, self._under_way = self._under_way, {}
        for _, _, callback in lost.values():
            callback(ConnectionResetError("the connection is gone"))

    def data_received(self, data: bytes) -> None:
        """Pass responses to their callbacks; malformed data closes the connection."""
        try:
            for frame in self._reader.feed(data):
                waiting = self._under_way.pop(correlation_id_of(frame), None)
                if waiting is not None:
                    api, version, callback = waiting
                    callback(parse_response(api, version, frame))
        except MalformedMessage:
            self.abort()

    def send(
        self, api: LeaseApi, body: Message, callback: Callable[[Message | OSError], None]
    ) -> None:
        """Send a request in the latest version."""
        if self._transport is None:
            callback(ConnectionResetError("the connection is gone"))
            return
        version = LATEST[api]
        self._next_id += 1
        self._under_way[self._next_id] = (api, version, callback)
        header = LeasedRequestHeader(
            api_key=api,
            api_version=version,
            correlation_id=self._next_id,
            client_id=self._client_id,
        )
        frame = build_request(header, body)
        self._transport.write(len(frame).to_bytes(4) + frame)

    async def ask(self, api: LeaseApi, body: Message, timeout_seconds: float) -> Message:
        """Send a request and wait for its answer. Raises OSError."""
        answer: asyncio.Future[Message | OSError] = asyncio.get_running_loop().create_future()
        self.send(api, body, lambda outcome: None if answer.done() else answer.set_result(outcome))
        async with asyncio.timeout(timeout_seconds):
            found = await answer
        if isinstance(found, OSError):
            raise found
        return found

    def abort(self) -> None:
        """Close immediately."""
        if self._transport is not None:
            self._transport.abort()
