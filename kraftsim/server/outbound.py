"""The client side of a connection: pipelined requests, with responses in the same order.

Versions are negotiated once per connection: the highest one that both sides support. A request
timeout closes the whole connection, because a late response could not be distinguished from the
next one.
Source: org.apache.kafka.clients.NetworkClient and InFlightRequests, KIP-35, KIP-511.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from typing import cast

from msgspec import Struct

from kraftsim.server.call import reason_of
from kraftsim.server.events_connections import (
    OUTBOUND,
    ConnectionClosed,
    ConnectionOpened,
    FrameReceived,
    FrameSent,
    MessageFailed,
)
from kraftsim.server.security.login import RENEWED_AFTER, LinkSecurity, log_in
from kraftsim.version import __version__
from kraftsim.world.interface import Chunk, World
from protocol.announced_window import PRODUCE_VERSION, announced_window
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.frames import FrameReader
from protocol.malformed import MalformedMessage
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.registry import versions_of
from protocol.requests import decode_response_body, peek_correlation_id, request_chunks
from protocol.schema import Message, declaration_of

CONNECT_TIMEOUT_MS = 10_000
"""Kafka's socket.connection.setup.timeout.ms."""
REQUEST_TIMEOUT_MS = 30_000
"""Kafka's request.timeout.ms."""
FIRST_ASKED_API_VERSIONS = 4
"""A client sends the ApiVersions version of its own release, 3.9: a newer one would be refused and
retried with most nodes.
"""
NOT_SENT = "not sent"

NEVER = float("inf")
API_VERSIONS = int(ApiKey.API_VERSIONS)
API_NAMES = {int(key): key.name for key in ApiKey}
VersionRange = tuple[int, int]
"""First and last version, both inclusive."""
OnAnswer = Callable[[Message | OSError], None]
"""Receives the response, or the error of the request: Disconnected or RequestTimedOut."""


class Disconnected(ConnectionError):
    """The connection closed before the response; the outcome of the request is unknown."""


class RequestTimedOut(TimeoutError):
    """The peer did not answer in time; the connection is closed, and the outcome of the request is
    unknown.
    """


class NoCommonVersion(OSError):
    """The peer has no version of this API in common with this side; nothing was sent."""


class NotEncodable(NoCommonVersion):
    """The request has a value that no version can encode; nothing was sent, and a retry is
    useless.
    """


class InFlight(Struct):
    """A request in flight. `deadline` is in seconds of the event loop's clock."""

    correlation_id: int
    api_key: int
    api_version: int
    deadline: float
    on_answer: OnAnswer


class PeerConnection(asyncio.Protocol):
    """One connection to a node: `await connect()`, then `request` (a Future) or `send` (a callback,
    for hot paths), then `close`.

    `number` identifies the connection in this node's events. `own_versions` restricts the versions
    of this side (a node of an older release); the default is all implemented ones. `on_closed` is
    called once when the connection is closed by either side. `local_host` is the local address to
    connect from; by default the system chooses. `security` is required by the peer's listener: TLS,
    SASL.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        world: World | None = None,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        own_versions: Mapping[int, VersionRange] | None = None,
        frame_events: bool = False,
        number: int = 0,
        on_closed: Callable[["PeerConnection"], None] | None = None,
        local_host: str | None = None,
        security: LinkSecurity | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.number = number
        self.on_closed = on_closed
        self._peer = f"{host}:{port}"
        self._link = f">{self._peer}"
        self._local_address = None if local_host is None else (local_host, 0)
        self._security = security
        self._renew_at = NEVER
        self._client_id = client_id
        self._world = world
        self._frame_events = frame_events and world is not None
        self._request_timeout_ms = request_timeout_ms
        self._own_versions = own_versions
        self._peer_versions: dict[int, VersionRange] = {}
        self._peer_features: dict[str, int] = {}
        self.has_window = False
        """Whether the peer advertises the Produce version of brokers with a window of sequence
        numbers (KIP-758).
        """
        self.announced_window: int | None = None
        """The window of sequence numbers of the peer, if it advertises one (KIP-758)."""
        self.is_migration_ready = False
        """Whether the peer is ready for a migration from ZooKeeper (KIP-866)."""
        self._versions: dict[int, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: asyncio.Transport | None = None
        self._closed_because: OSError | None = None
        self._frames = FrameReader()
        self._in_flight: deque[InFlight] = deque()
        self._unsent: list[Chunk] = []
        self._next_correlation_id = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = NEVER

    # Opening and closing
    # ----------------------------------------------------------------------------------------------

    async def connect(self, *, timeout_ms: int = CONNECT_TIMEOUT_MS) -> None:
        """Connect and negotiate versions.

        Raises OSError kinds: refused, unreachable, RequestTimedOut, Disconnected, NoCommonVersion.
        """
        assert self._loop is None, "a connection is opened once"
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._dial(self._loop)
                await self._negotiate()
                if self._security is not None:
                    await self._log_in(self._security)
        except TimeoutError as error:
            self._end(
                RequestTimedOut(
                    f"{self._peer} did not accept the connection within {timeout_ms} ms"
                )
            )
            raise RequestTimedOut(
                f"{self._peer} did not accept the connection within {timeout_ms} ms"
            ) from error
        except BaseException:
            self._end(Disconnected(f"the connection to {self._peer} was given up"))
            raise

    async def _dial(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the connection.

        Raises OSError, also for invalid hosts or ports, because addresses come from other nodes.
        """
        tls = None if self._security is None else self._security.tls
        try:
            if tls is None:
                await loop.create_connection(
                    lambda: self, self.host, self.port, local_addr=self._local_address
                )
            else:
                await loop.create_connection(
                    lambda: self, self.host, self.port, local_addr=self._local_address, ssl=tls
                )
        except (
            ValueError,
            OverflowError,
        ) as impossible:  # a label of 64 characters, a null character; a port above 65535
            raise OSError(
                errno.EADDRNOTAVAIL, f"{self._peer} cannot be an address: {impossible}"
            ) from impossible

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return (
            self._transport is not None
            and self._closed_because is None
            and (self._renew_at is NEVER or not self._is_over())
        )

    @property
    def in_flight_count(self) -> int:
        """The number of requests in flight."""
        return len(self._in_flight)

    def close(self) -> None:
        """Close the connection; requests in flight fail with Disconnected.

        Closing twice does nothing.
        """
        self._end(Disconnected(f"the connection to {self._peer} was closed by this side"))

    def abort(self) -> None:
        """Close the connection immediately, as a killed process would: no callback is called any
        more.
        """
        self._closed_because = Disconnected("aborted")
        self._in_flight.clear()
        self._unsent.clear()
        self.on_closed = None
        self._disarm()
        if self._transport is not None:
            self._transport.abort()

    # Requests
    # ----------------------------------------------------------------------------------------------

    def version_for(self, api_key: int) -> int:
        """Return the highest version of an API that both sides support. Raises NoCommonVersion."""
        version = self._versions.get(api_key)
        if version is None:
            version = self._versions[api_key] = self._common_version(api_key)
        return version

    def finalized_level(self, feature: str) -> int:
        """Return the finalized level of a feature of the peer's cluster at connection time; 0: not
        finalized.
        """
        return self._peer_features.get(feature, 0)

    def _common_version(self, api_key: int) -> int:
        theirs = self._peer_versions.get(api_key)
        ours = (
            versions_of(api_key) if self._own_versions is None else self._own_versions.get(api_key)
        )
        if theirs is None or ours is None:
            raise NoCommonVersion(f"{self._peer} does not offer {API_NAMES[api_key]}")
        if max(ours[0], theirs[0]) > min(ours[1], theirs[1]):
            raise NoCommonVersion(
                f"{self._peer} offers {API_NAMES[api_key]} {theirs[0]}-{theirs[1]}, this side "
                f"knows {ours[0]}-{ours[1]}"
            )
        return min(ours[1], theirs[1])

    def request(
        self, body: Message, timeout_ms: int | None = None, *, api_version: int | None = None
    ) -> "asyncio.Future[Message]":
        """Send a request and return a future of its response, which raises Disconnected,
        RequestTimedOut or NoCommonVersion.
        """
        future, settle = answer_future()
        try:
            self.send(body, settle, timeout_ms=timeout_ms, api_version=api_version)
        except OSError as error:
            settle(error)
        return future

    def send(
        self,
        body: Message,
        on_answer: OnAnswer,
        *,
        timeout_ms: int | None = None,
        api_version: int | None = None,
    ) -> None:
        """Send a request; `on_answer` is called exactly once, later. Raises Disconnected or
        NoCommonVersion instead if it cannot be sent at all.
        """
        if self._closed_because is not None or self._transport is None or self._loop is None:
            raise Disconnected(
                f"no connection to {self._peer}: {self._closed_because or 'not connected yet'}"
            )
        if self._renew_at is not NEVER and self._is_over():
            self.close()
            raise Disconnected(f"the session with {self._peer} is about to expire")
        message_class: type = type(body)
        api_key = api_key_of(message_class)
        version = self.version_for(api_key) if api_version is None else api_version
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        try:
            chunks = request_chunks(api_key, version, correlation_id, self._client_id, body)
        except Exception as failure:  # a value that cannot be encoded
            raise self._not_encodable(api_key, version, correlation_id, failure) from failure
        is_alone, is_first_to_wait = not self._in_flight, not self._unsent
        deadline = (
            self._loop.time()
            + (self._request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        )
        self._in_flight.append(InFlight(correlation_id, api_key, version, deadline, on_answer))
        if deadline < self._alarm_at:
            self._arm(deadline)
        if self._frame_events and self._world is not None:
            self._world.emit(
                FrameSent(
                    connection=self.number,
                    peer=self._peer,
                    api_key=api_key,
                    api_version=version,
                    correlation_id=correlation_id,
                    is_response=False,
                    size_bytes=sum(map(len, chunks)) - 4,
                    link=self._link,
                )
            )
        self._unsent.extend(chunks)
        if is_alone:
            self._write()
        elif is_first_to_wait:
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        """Write pending requests to the transport; earlier events are written to the event log
        first.

        A request leaves immediately if none is in flight; later ones are batched, once per
        event-loop turn.
        """
        if self._unsent and self._transport is not None and self._closed_because is None:
            if self._world is not None:
                self._world.flush_events()
            self._transport.writelines(self._unsent)
        self._unsent = []

    # Responses
    # ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport."""
        self._transport = transport = cast(
            asyncio.Transport, transport
        )  # uvloop's transports are none by inheritance
        if self._closed_because is not None:
            transport.abort()
            return
        self._link = f"{_address(transport, 'sockname')}>{_address(transport, 'peername')}"
        if self._world is not None:
            self._world.emit(
                ConnectionOpened(connection=self.number, listener=OUTBOUND, peer=self._link)
            )

    def data_received(self, data: bytes) -> None:
        """Split the stream into frames and pass each to the oldest request in flight."""
        try:
            for frame in self._frames.feed(data):
                if self._closed_because is not None:
                    return
                self._answer(frame)
        except MalformedMessage as error:
            self._end(Disconnected(f"{self._peer} sent an invalid response: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """All requests in flight fail with Disconnected."""
        self._end(
            Disconnected(
                f"{self._peer} closed the connection"
                if exc is None
                else f"connection to {self._peer} lost: {exc}"
            )
        )

    def _answer(self, frame: bytes) -> None:
        correlation_id = peek_correlation_id(frame)
        if not self._in_flight or self._in_flight[0].correlation_id != correlation_id:
            self._end(
                Disconnected(
                    f"{self._peer} sent an answer with correlation id {correlation_id} that "
                    "nothing waits for"
                )
            )
            return
        request = self._in_flight[0]
        version = (
            request.api_version
            if request.api_key != API_VERSIONS
            else _answered_version(request, frame)
        )
        body = decode_response_body(request.api_key, version, frame)
        self._in_flight.popleft()
        if self._frame_events and self._world is not None:
            self._world.emit(
                FrameReceived(
                    connection=self.number,
                    peer=self._peer,
                    api_key=request.api_key,
                    api_version=request.api_version,
                    correlation_id=correlation_id,
                    is_response=True,
                    size_bytes=len(frame),
                    link=self._link,
                )
            )
        request.on_answer(body)

    async def _negotiate(self) -> None:
        """Negotiate versions; a peer that does not support this ApiVersions version returns the
        ones it supports (error 35).
        """
        _, version = self._api_versions_range()
        answer = await self.request(_api_versions_request(), api_version=version)
        assert isinstance(answer, ApiVersionsResponse), "ApiVersions was asked"
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = [
                row.max_version for row in answer.api_keys if row.api_key == ApiKey.API_VERSIONS
            ]
            answer = await self.request(
                _api_versions_request(), api_version=min(offered[0], version) if offered else 0
            )
            assert isinstance(answer, ApiVersionsResponse), "ApiVersions was asked"
        if answer.error_code != ErrorCode.NONE:
            raise Disconnected(f"{self._peer} answered ApiVersions with error {answer.error_code}")
        self._peer_versions = {
            row.api_key: (row.min_version, row.max_version) for row in answer.api_keys
        }
        self.has_window = self._peer_versions.get(ApiKey.PRODUCE, (0, 0))[1] >= PRODUCE_VERSION
        self.announced_window = (
            announced_window(getattr(answer, "_tags", None)) if self.has_window else None
        )
        self._peer_features = {row.name: row.max_version_level for row in answer.finalized_features}
        self.is_migration_ready = answer.zk_migration_ready

    async def _log_in(self, security: LinkSecurity) -> None:
        """Authenticate, if the peer's listener requires it."""
        assert self._loop is not None, "the connection is open"
        lifetime_ms = await log_in(
            security, lambda body, version: self.request(body, api_version=version)
        )
        if lifetime_ms:
            self._renew_at = self._loop.time() + RENEWED_AFTER * lifetime_ms / 1000

    def _is_over(self) -> bool:
        """Whether the session is about to expire, and nothing is in flight: a new connection
        authenticates again.
        """
        return (
            self._loop is not None and self._loop.time() >= self._renew_at and not self._in_flight
        )

    def _api_versions_range(self) -> VersionRange:
        if self._own_versions is None:
            first, last = versions_of(ApiKey.API_VERSIONS)
            return first, min(last, FIRST_ASKED_API_VERSIONS)
        return self._own_versions[ApiKey.API_VERSIONS]

    # Timeouts and close
    # ----------------------------------------------------------------------------------------------

    def _arm(self, deadline: float) -> None:
        assert self._loop is not None, "timeouts start with the connection"
        self._disarm()
        self._alarm = self._loop.call_at(deadline, self._on_alarm)
        self._alarm_at = deadline

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm, self._alarm_at = None, NEVER

    def _on_alarm(self) -> None:
        """Close the connection if a request is overdue; otherwise sleep until the next deadline.

        Responses do not move the alarm.
        """
        assert self._loop is not None, "an alarm was set"
        self._alarm, self._alarm_at = None, NEVER
        if not self._in_flight:
            return
        earliest = min(self._in_flight, key=lambda request: request.deadline)
        if earliest.deadline > self._loop.time():
            self._arm(earliest.deadline)
            return
        name = API_NAMES[earliest.api_key]
        self._end(Disconnected(f"{self._peer} did not answer {name} in time"), overdue=earliest)

    def _end(self, reason: Disconnected | RequestTimedOut, overdue: InFlight | None = None) -> None:
        if self._closed_because is not None:
            return
        self._closed_because = reason
        self._disarm()
        self._unsent = []
        if self._transport is not None:
            self._transport.close()
            if self._world is not None:
                self._world.emit(
                    ConnectionClosed(
                        connection=self.number,
                        listener=OUTBOUND,
                        peer=self._link,
                        reason=str(reason),
                    )
                )
        failed, self._in_flight = self._in_flight, deque()
        for request in failed:
            request.on_answer(RequestTimedOut(str(reason)) if request is overdue else reason)
        if self.on_closed is not None:
            self.on_closed(self)

    # Events
    # ----------------------------------------------------------------------------------------------

    def _not_encodable(
        self, api_key: int, api_version: int, correlation_id: int, failure: Exception
    ) -> NotEncodable:
        reason = reason_of(failure)
        if self._world is not None:
            self._world.emit(
                MessageFailed(
                    connection=self.number,
                    api_key=api_key,
                    api_version=api_version,
                    correlation_id=correlation_id,
                    is_response=False,
                    reason=reason,
                    action=NOT_SENT,
                )
            )
        return NotEncodable(f"{API_NAMES[api_key]} cannot be encoded: {reason}")


def answer_future() -> tuple["asyncio.Future[Message]", OnAnswer]:
    """Return a future, and the callback that completes it with a response or an OSError; a
    cancelled future is left alone.
    """
    future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def settle(answer: Message | OSError) -> None:
        if future.done():
            return
        if isinstance(answer, OSError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    return future, settle


def _address(transport: asyncio.BaseTransport, which: str) -> str:
    """Return 'host:port' of one end of a connection; both ends use the same name."""
    address = transport.get_extra_info(which)
    return f"{address[0]}:{address[1]}" if address else "?"


def _api_versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="kraftsim", client_software_version=__version__)


@cache
def api_key_of(message_class: type) -> int:
    """Return the API key of a request or response class."""
    return declaration_of(message_class).api_key or 0


def _answered_version(request: InFlight, frame: bytes) -> int:
    """An ApiVersions response with UNSUPPORTED_VERSION is encoded in version 0, whatever the
    request version (KIP-511).
    """
    if int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
        return 0
    return request.api_version
