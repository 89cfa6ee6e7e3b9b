"""Connections of lease_pid: what a server hears on one, and what a client or a follower asks on one.

Requests of a connection are begun in order and answered in order; several may be under way.   Source: the lease_pid draft; Kafka's own connections.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Protocol, cast

from kraftsim.node.tasks import NodeTasks
from protocol.frames import FrameReader
from protocol.lease_pid.frames import (
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
    """Whoever answers requests."""

    tasks: NodeTasks

    def begin(self, body: Message, link: "ServerLink") -> Coroutine[None, None, Message]:
        """Do at once what must be done in order, and return what is to be waited for."""
        ...

    def on_made(self, link: "ServerLink") -> None:
        """Somebody has connected."""
        ...

    def on_lost(self, link: "ServerLink") -> None:
        """Somebody is gone."""
        ...

    def flush_events(self) -> None:
        """Write down what is known before anybody is told."""
        ...


class ServerLink(asyncio.Protocol):
    """One client of a server."""

    def __init__(self, server: RequestServer) -> None:
        self._server = server
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._answers: deque[list[bytes]] = deque()
        """One place per request under way, filled when its answer is known."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are none by inheritance
        self._server.on_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits for answers any more."""
        self._transport = None
        self._server.on_lost(self)

    def data_received(self, data: bytes) -> None:
        """Begin every request that is whole; whoever sends anything else is left."""
        try:
            for frame in self._reader.feed(data):
                header, body = parse_request(frame)
                place: list[bytes] = []
                self._answers.append(place)
                self._server.tasks.spawn(self._answer(header, place, self._server.begin(body, self)), "lease-request")
        except MalformedMessage:
            self.abort()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def _answer(self, header: LeasedRequestHeader, place: list[bytes], work: Coroutine[None, None, Message]) -> None:
        frame = build_response(header.correlation_id, header.api_version, await work)
        place.append(len(frame).to_bytes(4) + frame)
        self._server.flush_events()
        while self._answers and self._answers[0]:
            [ready] = self._answers.popleft()
            if self._transport is not None:
                self._transport.write(ready)


class ClientLink(asyncio.Protocol):
    """One connection to a server. `send` tells an answer, or why there is none, to a function; `ask` waits for it."""

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
    async def open(cls, client_id: str, host: str, port: int, timeout_seconds: float) -> "ClientLink":
        """Connect. Raises OSError."""
        link = cls(client_id)
        async with asyncio.timeout(timeout_seconds):
            await asyncio.get_running_loop().create_connection(lambda: link, host, port)
        return link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all who wait."""
        self._transport = None
        lost, self._under_way = self._under_way, {}
        for _, _, tell in lost.values():
            tell(ConnectionResetError("the connection is gone"))

    def data_received(self, data: bytes) -> None:
        """Hand answers on; a server that sends anything else is left."""
        try:
            for frame in self._reader.feed(data):
                waiting = self._under_way.pop(correlation_id_of(frame), None)
                if waiting is not None:
                    api, version, tell = waiting
                    tell(parse_response(api, version, frame))
        except MalformedMessage:
            self.abort()

    def send(self, api: LeaseApi, body: Message, tell: Callable[[Message | OSError], None]) -> None:
        """Send a request in the latest version."""
        if self._transport is None:
            tell(ConnectionResetError("the connection is gone"))
            return
        version = LATEST[api]
        self._next_id += 1
        self._under_way[self._next_id] = (api, version, tell)
        header = LeasedRequestHeader(api_key=api, api_version=version, correlation_id=self._next_id, client_id=self._client_id)
        frame = build_request(header, body)
        self._transport.write(len(frame).to_bytes(4) + frame)

    async def ask(self, api: LeaseApi, body: Message, timeout_seconds: float) -> Message:
        """Send a request and wait for its answer. Raises OSError."""
        answer: asyncio.Future[Message | OSError] = asyncio.get_running_loop().create_future()
        self.send(api, body, lambda told: None if answer.done() else answer.set_result(told))
        async with asyncio.timeout(timeout_seconds):
            found = await answer
        if isinstance(found, OSError):
            raise found
        return found

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
