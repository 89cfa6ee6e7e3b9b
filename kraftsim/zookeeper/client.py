"""A ZooKeeper client: one session that survives connection losses, ordered requests, and watches
that are set again after a reconnect.

A request in flight when its connection is lost fails with CONNECTION_LOSS: its outcome is unknown,
and the caller must decide what to do. An expired session stays SESSION_EXPIRED; the caller must
create a new client.
Source: org.apache.zookeeper.ClientCnxn, ZooKeeper Programmer's Guide (sessions, watches,
consistency).
"""

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, cast

from kraftsim.server.tasks import NodeTasks
from kraftsim.world.interface import World
from protocol.codec.message_codec import compiled
from protocol.frames import FrameReader
from protocol.malformed import MalformedMessage
from protocol.schema import Message
from protocol.zookeeper.op_codes import (
    ANY_VERSION,
    NOTIFICATION_XID,
    PING_XID,
    SET_WATCHES_XID,
    CreateMode,
    EventType,
    OpCode,
    ZookeeperError,
)
from protocol.zookeeper.znodes import (
    AclEntry,
    Asked,
    ConnectRequest,
    ConnectResponse,
    CreateRequest,
    ErrorResult,
    GetChildren2Response,
    GetDataResponse,
    PathOnly,
    Result,
    SetDataRequest,
    SetWatches,
    Stat,
    StatResponse,
    VersionedPath,
    WatchedPath,
    WatcherEvent,
    ZookeeperReplyHeader,
    ZookeeperRequestHeader,
    build_multi,
    parse_multi_results,
)

OPEN_TO_ALL: Final = AclEntry(perms=31, scheme="world", id="anyone")
REPLY_HEADER_BYTES: Final = 16
RETRY_MS: Final = 1000
"""The maximum pause between two attempts to connect to a server."""
Address = tuple[str, int]


class SessionState(Enum):
    """The state of the session."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    EXPIRED = "expired"
    CLOSED = "closed"


class ZookeeperRefused(Exception):
    """A request failed, or its outcome is unknown; `error` is the ZooKeeper error code."""

    def __init__(self, error: int, path: str = "") -> None:
        super().__init__(f"{_name_of(error)}{f' at {path}' if path else ''}")
        self.error = error
        self.path = path


@dataclass(slots=True)
class _Pending:
    """A request that waits for its response. `watch` is registered when the response allows it."""

    op_code: int
    content: bytes
    path: str
    watches: bool
    answer: "asyncio.Future[bytes]"
    xid: int = 0


@dataclass(slots=True)
class _Watched:
    """The watched paths, by kind of watch, as SetWatches needs them."""

    data: dict[str, None] = field(default_factory=dict)
    existence: dict[str, None] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)

    def remove_triggered(self, event_type: int, path: str) -> None:
        """Remove the watches that an event has triggered."""
        if event_type in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED):
            self.children.pop(path, None)
        if event_type != EventType.NODE_CHILDREN_CHANGED:
            self.data.pop(path, None)
            self.existence.pop(path, None)


class ZookeeperClient:
    """`on_event(type, path)` receives watch events, `on_state(state)` session states; both are
    called within the event loop.
    """

    def __init__(
        self,
        world: World,
        addresses: Sequence[Address],
        *,
        session_timeout_ms: int = 18_000,
        on_event: Callable[[EventType, str], None] = lambda event_type, path: None,
        on_state: Callable[[SessionState], None] = lambda state: None,
        local_host: str | None = None,
        chroot: str = "",
    ) -> None:
        self._chroot = chroot
        """The chroot: prefix of all paths, also of those in events; "" for the root."""
        self.state = SessionState.CONNECTING
        self.session = 0
        self.session_timeout_ms = session_timeout_ms
        self.failure: BaseException | None = None
        self._world = world
        self._addresses = list(addresses)
        self._password = bytes(16)
        self._on_event = on_event
        self._on_state = on_state
        self._local = (local_host, 0) if local_host is not None else None
        self._waiting: list[_Pending] = []
        """Requests made while disconnected."""
        self._under_way: dict[int, _Pending] = {}
        self._watched = _Watched()
        self._xid = 0
        self._last_zxid = 0
        self._link: _Link | None = None
        self._received_s = 0.0
        self._tasks = NodeTasks(self._fail)

    # Session
    # ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start connecting; requests are queued until connected."""
        self._tasks.spawn(self._run(), "zookeeper-session")

    async def close(self) -> None:
        """Close the session, which deletes its ephemeral znodes immediately."""
        if self.state is SessionState.CONNECTED:
            try:
                async with asyncio.timeout(self.session_timeout_ms / 1000):
                    await self._ask(OpCode.CLOSE_SESSION, b"", "")
            except (ZookeeperRefused, TimeoutError):
                pass  # then the session expires on the server
        self.abort(SessionState.CLOSED)
        await self._tasks.join()

    def abort(self, state: SessionState = SessionState.CLOSED) -> None:
        """Drop the connection immediately, as a killed process would: the session ends when it
        times out.
        """
        self._enter(state)
        self._tasks.cancel()
        if self._link is not None:
            self._link.abort()
        error = (
            ZookeeperError.SESSION_EXPIRED
            if state is SessionState.EXPIRED
            else ZookeeperError.CONNECTION_LOSS
        )
        self._give_up(error, [*self._under_way.values(), *self._waiting])

    def break_connection(self) -> None:
        """Drop the connection but keep the session."""
        if self._link is not None:
            self._link.abort()

    # Requests
    # ----------------------------------------------------------------------------------------------

    async def create(
        self, path: str, data: bytes | None = b"", mode: CreateMode = CreateMode.PERSISTENT
    ) -> str:
        """Create a znode and return its path. Raises ZookeeperRefused, as all of these do."""
        body = await self._send(
            OpCode.CREATE,
            CreateRequest(path=self._at(path), data=data, acl=[OPEN_TO_ALL], flags=mode),
            path,
        )
        answer: PathOnly = compiled(PathOnly, 0).parse(body)
        return self._without_chroot(answer.path)

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        """Return the data and Stat of a znode."""
        answer: GetDataResponse = compiled(GetDataResponse, 0).parse(
            await self._send(
                OpCode.GET_DATA, WatchedPath(path=self._at(path), watch=watch), path, watch=watch
            )
        )
        return answer.data, answer.stat

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return the Stat of a znode, or None if it does not exist."""
        try:
            body = await self._send(
                OpCode.EXISTS, WatchedPath(path=self._at(path), watch=watch), path, watch=watch
            )
        except ZookeeperRefused as refused:
            if refused.error == ZookeeperError.NO_NODE:
                return None
            raise
        answer: StatResponse = compiled(StatResponse, 0).parse(body)
        return answer.stat

    async def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        """Return the sorted child names of a znode, and its Stat."""
        body = await self._send(
            OpCode.GET_CHILDREN_2, WatchedPath(path=self._at(path), watch=watch), path, watch=watch
        )
        answer: GetChildren2Response = compiled(GetChildren2Response, 0).parse(body)
        return sorted(answer.children), answer.stat

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Set the data of a znode if it has this version."""
        answer: StatResponse = compiled(StatResponse, 0).parse(
            await self._send(
                OpCode.SET_DATA,
                SetDataRequest(path=self._at(path), data=data, version=version),
                path,
            )
        )
        return answer.stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a znode if it has this version."""
        await self._send(OpCode.DELETE, VersionedPath(path=self._at(path), version=version), path)

    async def multi(self, asked: Sequence[Asked]) -> list[Result]:
        """Execute requests atomically.

        Raises ZookeeperRefused with the error and the path of the failed request.
        """
        rooted = (
            [(op_code, _rooted(body, self._chroot)) for op_code, body in asked]
            if self._chroot
            else asked
        )
        results = parse_multi_results(await self._ask(OpCode.MULTI, build_multi(rooted), ""), 0)
        for (_, body), (_, result) in zip(asked, results, strict=True):
            if isinstance(result, ErrorResult) and result.error not in (
                ZookeeperError.OK,
                ZookeeperError.RUNTIME_INCONSISTENCY,
            ):
                raise ZookeeperRefused(result.error, body.path)
        return results

    def _at(self, path: str) -> str:
        """Return a path with the chroot prepended."""
        return (self._chroot + path).rstrip("/") or "/"

    def _without_chroot(self, path: str) -> str:
        """Return a server path with the chroot removed."""
        return path.removeprefix(self._chroot) or "/" if self._chroot else path

    async def _send(self, op_code: int, body: Message, path: str, *, watch: bool = False) -> bytes:
        return await self._ask(op_code, compiled(type(body), 0).encode(body), path, watch=watch)

    async def _ask(self, op_code: int, content: bytes, path: str, *, watch: bool = False) -> bytes:
        if self.state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise ZookeeperRefused(ZookeeperError.SESSION_EXPIRED, path)
        pending = _Pending(
            op_code, content, path, watch, asyncio.get_running_loop().create_future()
        )
        if self.state is SessionState.CONNECTED:
            self._write(pending)
        else:
            self._waiting.append(pending)
        return await pending.answer

    def _write(self, pending: _Pending) -> None:
        assert self._link is not None, "a connected session has a connection"
        self._xid += 1
        pending.xid = self._xid
        self._under_way[pending.xid] = pending
        self._link.send(_headed(pending.xid, pending.op_code, pending.content))

    # Connections
    # ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Connect, keep the connection alive, and reconnect when it is lost, as long as the session
        lasts.
        """
        rng = self._world.random("zookeeper client")
        rng.shuffle(self._addresses)
        loop = asyncio.get_running_loop()
        attempt = 0
        while self.state not in (SessionState.EXPIRED, SessionState.CLOSED):
            host, port = self._addresses[attempt % len(self._addresses)]
            attempt += 1
            link = _Link(self)
            try:
                async with asyncio.timeout(self.session_timeout_ms / 1000 / len(self._addresses)):
                    await loop.create_connection(
                        lambda link=link: link, host, port, local_addr=self._local
                    )
                    await self._open_session(link)
                await self._keep_alive(link)
            except (OSError, TimeoutError, MalformedMessage):
                pass  # try the next server, or the same one
            finally:
                link.abort()
                self._lose(link)
            await asyncio.sleep(rng.randrange(RETRY_MS) / 1000)

    async def _open_session(self, link: "_Link") -> None:
        request = ConnectRequest(
            last_zxid_seen=self._last_zxid,
            timeout_ms=self.session_timeout_ms,
            session_id=self.session,
            password=self._password,
        )
        link.send(compiled(ConnectRequest, 1).encode(request))
        answer: ConnectResponse = compiled(ConnectResponse, 1).parse(await link.first_frame())
        if not answer.session_id:
            self.abort(SessionState.EXPIRED)
            return
        self.session, self._password, self.session_timeout_ms = (
            answer.session_id,
            answer.password or b"",
            answer.timeout_ms,
        )
        self._link = link
        link.is_open = True
        self._received_s = asyncio.get_running_loop().time()
        self._reset_watches(link)
        self._enter(SessionState.CONNECTED)
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            if not pending.answer.done():
                self._write(pending)
        link.deliver()

    async def _keep_alive(self, link: "_Link") -> None:
        """Send pings; return when the connection is lost, or nothing is received for two thirds of
        the session timeout.
        """
        loop = asyncio.get_running_loop()
        third_s = self.session_timeout_ms / 3000
        while self._link is link and not link.lost.is_set():
            try:
                async with asyncio.timeout(third_s):
                    await link.lost.wait()
            except TimeoutError:
                if loop.time() - self._received_s > 2 * third_s:
                    return
                link.send(_headed(PING_XID, OpCode.PING, b""))

    def _reset_watches(self, link: "_Link") -> None:
        watched = self._watched
        if watched.data or watched.existence or watched.children:
            wanted = SetWatches(
                relative_zxid=self._last_zxid,
                data_watches=list(watched.data),
                exist_watches=list(watched.existence),
                child_watches=list(watched.children),
            )
            link.send(
                _headed(SET_WATCHES_XID, OpCode.SET_WATCHES, compiled(SetWatches, 0).encode(wanted))
            )

    def _lose(self, link: "_Link") -> None:
        if self._link is not link:
            return
        self._link = None
        if self.state is SessionState.CONNECTED:
            self._enter(SessionState.CONNECTING)
        lost, self._under_way = list(self._under_way.values()), {}
        self._give_up(ZookeeperError.CONNECTION_LOSS, lost)

    def on_frame(self, frame: bytes) -> None:
        """Process a response or a notification. Raises MalformedMessage."""
        self._received_s = asyncio.get_running_loop().time()
        header: ZookeeperReplyHeader = compiled(ZookeeperReplyHeader, 0).decode(frame, 0)[0]
        if header.xid == NOTIFICATION_XID:
            event: WatcherEvent = compiled(WatcherEvent, 0).decode(frame, REPLY_HEADER_BYTES)[0]
            self._watched.remove_triggered(event.event_type, event.path)
            self._on_event(EventType(event.event_type), self._without_chroot(event.path))
            return
        if header.zxid > 0:
            self._last_zxid = max(self._last_zxid, header.zxid)
        pending = self._under_way.pop(header.xid, None)
        if pending is None or pending.answer.done():
            return  # a ping, a response to SetWatches, or an abandoned request
        self._register_watch(pending, header.error)
        if header.error:
            pending.answer.set_exception(ZookeeperRefused(header.error, pending.path))
        else:
            pending.answer.set_result(frame[REPLY_HEADER_BYTES:])

    def _register_watch(self, pending: _Pending, error: int) -> None:
        if not pending.watches:
            return
        if pending.op_code == OpCode.EXISTS and error == ZookeeperError.NO_NODE:
            self._watched.existence[self._at(pending.path)] = None
        elif not error:
            watched = (
                self._watched.children
                if pending.op_code == OpCode.GET_CHILDREN_2
                else self._watched.data
            )
            watched[self._at(pending.path)] = None

    def _give_up(self, error: int, abandoned: list[_Pending]) -> None:
        for pending in abandoned:
            if not pending.answer.done():
                pending.answer.set_exception(ZookeeperRefused(error, pending.path))

    def _enter(self, state: SessionState) -> None:
        if self.state is not state and self.state not in (
            SessionState.EXPIRED,
            SessionState.CLOSED,
        ):
            self.state = state
            self._on_state(state)

    def _fail(self, mistake: BaseException) -> None:
        self.failure = mistake
        self.abort()


class _Link(asyncio.Protocol):
    """One connection to a server. Frames that arrive before the session is open wait."""

    def __init__(self, client: ZookeeperClient) -> None:
        self.lost = asyncio.Event()
        self.is_open = False
        self._client = client
        self._reader = FrameReader()
        self._frames: list[bytes] = []
        self._has_frame = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport."""
        self._transport = cast(
            asyncio.Transport, transport
        )  # uvloop's transports are none by inheritance

    def data_received(self, data: bytes) -> None:
        """Process complete frames; disconnect from a server that sends malformed data."""
        try:
            self._frames += self._reader.feed(data)
            if self._frames:
                self._has_frame.set()
            if self.is_open:
                self.deliver()
        except MalformedMessage:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake the tasks that wait for this connection."""
        self._transport = None
        self.lost.set()
        self._has_frame.set()

    async def first_frame(self) -> bytes:
        """Wait for the ConnectResponse. Raises ConnectionResetError."""
        await self._has_frame.wait()
        if not self._frames:
            raise ConnectionResetError("the server has closed the connection")
        return self._frames.pop(0)

    def deliver(self) -> None:
        """Pass the received frames to the client. Raises MalformedMessage."""
        while self._frames:
            self._client.on_frame(self._frames.pop(0))

    def send(self, content: bytes) -> None:
        """Send a frame; a closed connection drops it."""
        if self._transport is not None:
            self._transport.write(len(content).to_bytes(4) + content)

    def abort(self) -> None:
        """Close immediately."""
        if self._transport is not None:
            self._transport.abort()
        self.lost.set()


def _rooted(body: Message, chroot: str) -> Message:
    """Return a part of a multi with the chroot prepended."""
    assert isinstance(body, CreateRequest | SetDataRequest | VersionedPath), "these have a path"
    rooted = copy.copy(body)
    rooted.path = chroot + body.path
    return rooted


def _headed(xid: int, op_code: int, content: bytes) -> bytes:
    return (
        compiled(ZookeeperRequestHeader, 0).encode(ZookeeperRequestHeader(xid=xid, op_code=op_code))
        + content
    )


def _name_of(error: int) -> str:
    try:
        return ZookeeperError(error).name
    except ValueError:
        return f"error {error}"
