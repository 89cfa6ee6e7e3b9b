"""A broker's channel to the active controller: one request at a time, in order, until it is answered by a node that really is the controller.

NOT_CONTROLLER and lost connections are dealt with here: the request goes back to the head of the queue and the controller is looked for
again, so that whoever sent it sees only the answer, or that too much time has passed. A request may reach the controller more than once.
Source: kafka.server.NodeToControllerChannelManager, NodeToControllerRequestThread, KIP-590.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraftsim.node.endpoints import Voter
from kraftsim.node.outbound import CONNECT_TIMEOUT_MS, NoCommonVersion, OnAnswer, PeerConnection, RequestTimedOut, VersionRange, answer_future
from kraftsim.node.shell import NodeShell
from protocol.errors import ErrorCode
from protocol.schema import Message

RECONNECT_BACKOFF_MS = 50
RETRY_TIMEOUT_MS = 60_000
"""How long a KRaft broker tries before it gives a request up. The heartbeat channel has half the session time-out instead."""
CONTROLLER_SOCKET_TIMEOUT_MS = 30_000


class ControllerFinder:
    """Which voter to ask: the leader that the metadata log named last, else the voters in turn. Shared by the channels of a broker."""

    def __init__(self, voters: Sequence[Voter]) -> None:
        assert voters, "somebody must be asked first"
        self._voters = tuple(voters)
        self._turn = 0

    def current(self) -> Voter:
        """Return the node that is thought to be the active controller."""
        return self._voters[self._turn]

    def learned(self, leader_id: int) -> None:
        """Somebody who should know named the leader; an id that is no voter is ignored."""
        for turn, voter in enumerate(self._voters):
            if voter.node_id == leader_id:
                self._turn = turn

    def forget(self, wrong: Voter) -> None:
        """`wrong` is not the controller, or cannot be reached: try the next voter, unless somebody did so already."""
        if self.current() == wrong:
            self._turn = (self._turn + 1) % len(self._voters)


@dataclass(slots=True, kw_only=True)
class QueuedRequest:
    """A request on its way to the controller; `created_ms` starts the time it may take."""

    body: Message
    created_ms: int
    on_answer: OnAnswer


class ControllerChannel:
    """One queue to the controller, served by a task of the node from the first request on. Answers are never NOT_CONTROLLER."""

    def __init__(
        self,
        shell: NodeShell,
        *,
        name: str,
        finder: ControllerFinder | None = None,
        retry_timeout_ms: int = RETRY_TIMEOUT_MS,
        request_timeout_ms: int = CONTROLLER_SOCKET_TIMEOUT_MS,
        own_versions: Mapping[int, VersionRange] | None = None,
    ) -> None:
        self.name = name
        self._shell = shell
        self._finder = finder or ControllerFinder(shell.config.first_asked)
        self._retry_timeout_ms = retry_timeout_ms
        self._request_timeout_ms = min(request_timeout_ms, retry_timeout_ms)
        self._own_versions = own_versions
        self._queue: deque[QueuedRequest] = deque()
        self._has_work = asyncio.Event()
        self._is_served = False
        self._connection: PeerConnection | None = None
        self._voter: Voter | None = None

    @property
    def queued_count(self) -> int:
        """How many requests wait, the one in flight not counted."""
        return len(self._queue)

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Queue a request. `on_answer` is called once, later: with the answer, RequestTimedOut (it took too long) or NoCommonVersion."""
        now_ms = self._shell.world.clock.monotonic_ms()
        self._queue.append(QueuedRequest(body=body, created_ms=now_ms, on_answer=on_answer))
        self._has_work.set()
        if not self._is_served:
            self._is_served = True
            self._shell.tasks.spawn(self._serve(), f"channel-{self.name}")

    def request(self, body: Message) -> "asyncio.Future[Message]":
        """Queue a request and return a future of its answer, which raises what `send` would hand over instead."""
        future, settle = answer_future()
        self.send(body, settle)
        return future

    def close(self) -> None:
        """Drop the connection and whatever is queued: nobody is answered any more."""
        self._queue.clear()
        self._leave()

    def abort(self) -> None:
        """Drop the connection as a process that dies."""
        self._queue.clear()
        if self._connection is not None:
            self._connection.abort()

    async def _serve(self) -> None:
        while True:
            await self._has_work.wait()
            self._give_up_late()
            if not self._queue:
                self._has_work.clear()
            elif (connection := await self._connected()) is not None and self._queue:
                await self._exchange(connection, self._queue.popleft())

    def _give_up_late(self) -> None:
        """End the requests that waited longer than they may, oldest first."""
        now_ms = self._shell.world.clock.monotonic_ms()
        while self._queue and now_ms - self._queue[0].created_ms >= self._retry_timeout_ms:
            late = self._queue.popleft()
            late.on_answer(RequestTimedOut(f"no controller answered within {self._retry_timeout_ms} ms"))

    async def _connected(self) -> PeerConnection | None:
        """Return a connection to the supposed controller; None after a failed attempt and its back-off."""
        voter = self._finder.current()
        if self._connection is not None and self._connection.is_open and self._voter == voter:
            return self._connection
        self._leave()
        self._voter = voter
        self._connection = PeerConnection(
            voter.host,
            voter.port,
            client_id=str(self._shell.config.node_id),
            world=self._shell.world,
            request_timeout_ms=self._request_timeout_ms,
            own_versions=self._own_versions,
            frame_events=self._shell.config.frame_events,
            number=self._shell.next_connection_number(),
        )
        try:
            await self._connection.connect(timeout_ms=min(CONNECT_TIMEOUT_MS, self._request_timeout_ms))
        except OSError:
            await self._look_again(voter)
            return None
        return self._connection

    async def _exchange(self, connection: PeerConnection, request: QueuedRequest) -> None:
        """Send one request and wait for its answer; what did not reach the controller goes back to the head of the queue."""
        voter = self._voter
        assert voter is not None, "a connection leads to a voter"
        try:
            answer = await connection.request(request.body)
        except NoCommonVersion as unknown:
            request.on_answer(unknown)
            return
        except OSError:
            answer = None
        if answer is None or answer.error_code == ErrorCode.NOT_CONTROLLER:
            self._queue.appendleft(request)
            await self._look_again(voter)
        else:
            request.on_answer(answer)

    async def _look_again(self, voter: Voter) -> None:
        self._leave()
        self._finder.forget(voter)
        await asyncio.sleep(RECONNECT_BACKOFF_MS / 1000)

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
