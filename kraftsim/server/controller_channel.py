"""A broker's channel to the active controller: sends one request at a time, in order, and retries
it until the active controller answers.

NOT_CONTROLLER and lost connections are handled here: the request goes back to the head of the queue
and the controller is looked up again, so the caller sees only the response or a timeout. A request
may reach the controller more than once.
Source: kafka.server.NodeToControllerChannelManager, NodeToControllerRequestThread, KIP-590.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kraftsim.raft.rules_voters import Address
from kraftsim.server.outbound import (
    CONNECT_TIMEOUT_MS,
    NoCommonVersion,
    OnAnswer,
    PeerConnection,
    RequestTimedOut,
    VersionRange,
    answer_future,
    api_key_of,
)
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import YieldPoint
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreateTopicsResponse
from protocol.schema import Message

RECONNECT_BACKOFF_MS = 50
RETRY_TIMEOUT_MS = 60_000
"""The retry timeout of a KRaft broker.

The heartbeat channel uses half the session timeout instead.
"""
CONTROLLER_SOCKET_TIMEOUT_MS = 30_000


class ActiveController:
    """The address of the active controller, as known to the broker's metadata replica.

    Shared by the channels of a broker.
    """

    def __init__(self) -> None:
        self.address: Address | None = None
        self.is_broker = False
        """Whether the controller is a broker (ZooKeeper mode)."""
        self._is_known = asyncio.Event()

    def learned(self, address: Address | None, *, is_broker: bool = False) -> None:
        """The active controller changed; None if unknown."""
        self.address = address
        self.is_broker = is_broker
        if address is None:
            self._is_known.clear()
        else:
            self._is_known.set()

    async def known(self) -> Address:
        """Wait until the active controller is known, and return its address."""
        while self.address is None:
            await self._is_known.wait()
        return self.address


InVersion = Callable[[Message, int], Message]
"""Converts a request to a version."""


@dataclass(slots=True, kw_only=True)
class QueuedRequest:
    """A queued request to the controller; its timeout starts at `created_ms`."""

    body: Message
    created_ms: int
    on_answer: OnAnswer
    in_version: InVersion | None = None


class ControllerChannel:
    """A request queue to the controller, served by a task of the node from the first request on.

    Responses are never NOT_CONTROLLER.
    """

    def __init__(
        self,
        shell: NodeShell,
        *,
        name: str,
        controller: ActiveController,
        retry_timeout_ms: int = RETRY_TIMEOUT_MS,
        request_timeout_ms: int = CONTROLLER_SOCKET_TIMEOUT_MS,
        own_versions: Mapping[int, VersionRange] | None = None,
    ) -> None:
        self.name = name
        self._shell = shell
        self._controller = controller
        self._retry_timeout_ms = retry_timeout_ms
        self._request_timeout_ms = min(request_timeout_ms, retry_timeout_ms)
        self._own_versions = own_versions
        self._queue: deque[QueuedRequest] = deque()
        self._has_work = asyncio.Event()
        self._is_served = False
        self._connection: PeerConnection | None = None
        self._address: Address | None = None
        """The peer address of the connection."""

    @property
    def queued_count(self) -> int:
        """The number of queued requests, excluding the one in flight."""
        return len(self._queue)

    def send(self, body: Message, on_answer: OnAnswer, in_version: InVersion | None = None) -> None:
        """Queue a request.

        `on_answer` is called once, later: with the response, RequestTimedOut or NoCommonVersion.

        `in_version` converts `body` to the negotiated version, for requests whose versions differ
        in more than omitted fields.
        """
        now_ms = self._shell.world.clock.monotonic_ms()
        self._queue.append(
            QueuedRequest(body=body, created_ms=now_ms, on_answer=on_answer, in_version=in_version)
        )
        self._has_work.set()
        if not self._is_served:
            self._is_served = True
            self._shell.tasks.spawn(self._serve(), f"channel-{self.name}")

    def request(
        self, body: Message, in_version: InVersion | None = None
    ) -> "asyncio.Future[Message]":
        """Queue a request and return a future of its response, which raises the errors that `send`
        would pass to its callback.
        """
        future, settle = answer_future()
        self.send(body, settle, in_version)
        return future

    def close(self) -> None:
        """Close the connection and drop queued requests without answering them."""
        self._queue.clear()
        self._disconnect()

    def abort(self) -> None:
        """Close the connection immediately, as a killed process would."""
        self._queue.clear()
        if self._connection is not None:
            self._connection.abort()

    async def _serve(self) -> None:
        while True:
            await self._has_work.wait()
            self._fail_overdue()
            if not self._queue:
                self._has_work.clear()
            elif (address := await self._found()) is None:
                pass
            elif (connection := await self._connected(address)) is not None and self._queue:
                await self._exchange(connection, self._queue.popleft())

    def _fail_overdue(self) -> None:
        """Fail the requests that exceeded their timeout, oldest first."""
        now_ms = self._shell.world.clock.monotonic_ms()
        while self._queue and now_ms - self._queue[0].created_ms >= self._retry_timeout_ms:
            late = self._queue.popleft()
            late.on_answer(
                RequestTimedOut(f"no controller answered within {self._retry_timeout_ms} ms")
            )

    async def _found(self) -> Address | None:
        """Return the address of the active controller; None if it is not known before the oldest
        request times out.
        """
        if self._controller.address is not None:
            return self._controller.address
        self._disconnect()
        waited_ms = self._shell.world.clock.monotonic_ms() - self._queue[0].created_ms
        try:
            async with asyncio.timeout((self._retry_timeout_ms - waited_ms) / 1000):
                return await self._controller.known()
        except TimeoutError:
            return None

    async def _connected(self, address: Address) -> PeerConnection | None:
        """Return a connection to the controller; None after a failed attempt and its back-off."""
        if self._connection is not None and self._connection.is_open and self._address == address:
            return self._connection
        self._disconnect()
        self._address = address
        self._connection = PeerConnection(
            address.host,
            address.port,
            client_id=str(self._shell.config.node_id),
            world=self._shell.world,
            request_timeout_ms=self._request_timeout_ms,
            own_versions=self._own_versions,
            frame_events=self._shell.config.frame_events,
            number=self._shell.next_connection_number(),
            local_host=self._shell.config.outgoing_host,
            security=self._shell.security.to_brokers
            if self._controller.is_broker
            else self._shell.security.to_controllers,
        )
        try:
            await self._connection.connect(
                timeout_ms=min(CONNECT_TIMEOUT_MS, self._request_timeout_ms)
            )
        except OSError:
            await self._look_up_controller()
            return None
        return self._connection

    async def _exchange(self, connection: PeerConnection, request: QueuedRequest) -> None:
        """Send one request and wait for its response; a request that failed goes back to the head
        of the queue.
        """
        try:
            body = request.body
            if request.in_version is not None:
                message_class: type = type(body)
                body = request.in_version(body, connection.version_for(api_key_of(message_class)))
            answer = await connection.request(body)
        except NoCommonVersion as unknown:
            request.on_answer(unknown)
            return
        except OSError:
            answer = None
        await self._shell.world.yield_point(YieldPoint.CONTROLLER_ANSWERED)
        if answer is None or _is_for_another(answer):
            self._queue.appendleft(request)
            await self._look_up_controller()
        else:
            request.on_answer(answer)

    async def _look_up_controller(self) -> None:
        """Look up the active controller again: its identity comes from the metadata log alone."""
        self._disconnect()
        await asyncio.sleep(RECONNECT_BACKOFF_MS / 1000)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _is_for_another(answer: Message) -> bool:
    """Return whether another node is the controller; CreateTopics, which brokers send in ZooKeeper
    mode, has the error per topic.
    """
    if isinstance(answer, CreateTopicsResponse):
        return any(topic.error_code == ErrorCode.NOT_CONTROLLER for topic in answer.topics)
    code: int = answer.error_code
    return code == ErrorCode.NOT_CONTROLLER
