"""A standalone ZooKeeper server: sockets and files around the pure rules.

Requests of all clients are served in the order of arrival. Requests that arrive during a flush are
served together, written and flushed in one batch; responses are sent only after the flush.
Source: org.apache.zookeeper.server.{ZooKeeperServer, SyncRequestProcessor}.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.events import DiskFailed, ListenerOpened, NodeFailed, NodeStopped
from kraftsim.server.listeners import ListenerError
from kraftsim.server.tasks import NodeTasks
from kraftsim.world.interface import World
from kraftsim.zookeeper.connection import ZookeeperConnection, answer
from kraftsim.zookeeper.files import DIRECTORY, ZookeeperFiles
from kraftsim.zookeeper.rules_keeper import KeeperMoment, KeeperStep, ServerState
from kraftsim.zookeeper.rules_server import Sessions
from kraftsim.zookeeper.settings import ZookeeperSettings
from protocol.malformed import MalformedMessage

LISTENER: Final = "CLIENT"
SECRET_BYTES: Final = 16
SECRET_FILE: Final = "session-secret"
WAITING_MAX: Final = 1000
LOOK_S: Final = 0.001
"""The number of queued requests above which clients are no longer read."""


class RequestInterceptor(Protocol):
    """Intercepts requests and responses of a server: fault injection replaces it."""

    def step(self, connection: ZookeeperConnection, frame: bytes) -> KeeperStep | None:
        """Serve a frame, as `ZookeeperServer.step` does."""
        ...

    def tell(self, steps: list[KeeperStep]) -> None:
        """Send the responses of steps that are in the log, as `ZookeeperServer.tell` does."""
        ...


class ZookeeperServer:
    """Implements `kraftsim.cluster.launch.Node`."""

    def __init__(self, world: World, settings: ZookeeperSettings) -> None:
        self.world = world
        self.settings = settings
        self.frame_bytes_max = settings.frame_bytes_max
        self.connections: dict[int, ZookeeperConnection] = {}
        self.port = settings.port
        self.znode_state: ServerState
        self.front: RequestInterceptor = self
        """The server itself, unless a fault is injected."""
        self._tasks = NodeTasks(self._fail)
        self._files = ZookeeperFiles(world, settings.changes_between_snapshots)
        self._server: asyncio.Server | None = None
        self._connection_count = 0
        self._waiting: list[tuple[ZookeeperConnection, bytes]] = []
        self._paused: list[ZookeeperConnection] = []
        self._has_work = asyncio.Event()
        self._writing = asyncio.Lock()
        self._is_dead = False
        self._failure: asyncio.Future[BaseException] | None = None

    # Node lifecycle
    # ----------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> Mapping[str, ListenerEndpoint]:
        """Listener name -> bound endpoint."""
        return (
            {LISTENER: ListenerEndpoint(LISTENER, self.settings.host, self.port)}
            if self._server is not None
            else {}
        )

    @property
    def waiting_count(self) -> int:
        """The number of received requests that are not served yet."""
        return len(self._waiting)

    async def start(self) -> None:
        """Recover the files and open the listener. Raises ConfigError, OSError kinds."""
        self._failure = asyncio.get_running_loop().create_future()
        sessions = Sessions(self.settings.tick_ms, await self._secret())
        sessions.begin_ids_at(self.world.clock.wall_ms())
        self.znode_state = ServerState(sessions, self.world.emit, self.settings.super_digest)
        self._files.recover(self.znode_state, self.world.clock.monotonic_ms())
        await self._files.begin(self.znode_state)
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._accept, self.settings.host, self.settings.port
            )
        except OSError as reason:
            raise ListenerError(
                f"clientPort: cannot listen on {self.settings.host}:{self.settings.port}: "
                f"{reason.strerror or reason}"
            ) from reason
        self.port = self._server.sockets[0].getsockname()[1]
        self.world.emit(ListenerOpened(listener=LISTENER, host=self.settings.host, port=self.port))
        self._tasks.spawn(self._serve(), "serve")
        self._tasks.spawn(self._expire(), "expire-sessions")

    async def ready(self) -> None:
        """Return immediately: the server serves as soon as it has started."""

    async def failed(self) -> BaseException:
        """Wait until the server fails, and return why."""
        assert self._failure is not None, "it was started"
        return await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Serve the received requests, and stop; sessions persist in the files."""
        if self._is_dead:
            return
        if self._server is not None:
            self._server.close()
        while self._waiting:
            await asyncio.sleep(LOOK_S)  # earlier requests are being written
        for connection in list(self.connections.values()):
            connection.close()
        await self._tasks.join()
        self._files.close()
        self._is_dead = True
        self.world.emit(NodeStopped(reason="stopped"))
        self.world.flush_events()

    def abort(self) -> None:
        """Stop immediately, as a killed process would."""
        if self._is_dead:
            return
        self._is_dead = True
        if self._server is not None:
            self._server.close()
        self._tasks.cancel()
        for connection in list(self.connections.values()):
            connection.abort()
        self._files.close()

    # Callbacks of connections
    # ----------------------------------------------------------------------------------------------

    def on_connected(self, connection: ZookeeperConnection) -> bool:
        """Accept a connection, unless its address has too many already."""
        most = self.settings.connections_per_host_max
        self.connections[connection.number] = connection
        return (
            not most
            or sum(each.host == connection.host for each in self.connections.values()) <= most
        )

    def on_command(self, connection: ZookeeperConnection, word: str) -> bool:
        """Answer a four-letter command."""
        text = answer(self, word)
        if text is None:
            return False
        connection.send_text(text)
        return True

    def on_frames(self, connection: ZookeeperConnection, frames: list[bytes]) -> None:
        """Queue received frames."""
        self._waiting += ((connection, frame) for frame in frames)
        if len(self._waiting) > WAITING_MAX and connection not in self._paused:
            connection.pause()
            self._paused.append(connection)
        self._has_work.set()

    def on_disconnected(self, connection: ZookeeperConnection) -> None:
        """A client has disconnected; its session lasts."""
        self.connections.pop(connection.number, None)
        if not self._is_dead:
            self.znode_state.disconnect(connection.number)

    # Interface for fault injection
    # ----------------------------------------------------------------------------------------------

    @property
    def is_dead(self) -> bool:
        """Whether the server has stopped, by any cause."""
        return self._is_dead

    def serve_first(self, connection: ZookeeperConnection, frames: list[bytes]) -> None:
        """Put delayed frames at the head of the queue."""
        self._waiting[:0] = [(connection, frame) for frame in frames]
        self._has_work.set()

    async def end_session(self, session: int) -> None:
        """Expire a session whose client is alive, as if no ping had arrived in time."""
        if session in self.znode_state.sessions.by_id:
            await self._carry_out([self.znode_state.end_sessions([session], self._moment())])

    # Request processing
    # ----------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            waiting, self._waiting = self._waiting, []
            paused, self._paused = self._paused, []
            steps = [
                step
                for connection, frame in waiting
                if (step := self.front.step(connection, frame)) is not None
            ]
            await self._carry_out(steps)
            for connection in paused:
                connection.resume()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self.settings.tick_ms / 1000)
            step = self.znode_state.expire(self._moment())
            await self._carry_out([step])

    async def _carry_out(self, steps: list[KeeperStep]) -> None:
        """Write the transactions, then send the responses."""
        txns = [txn for step in steps for txn in step.txns]
        async with self._writing:
            try:
                if txns:
                    await self._files.write(txns)
                    await self._files.snapshot_if_due(self.znode_state)
            except OSError as refused:
                self.world.emit(DiskFailed(path=DIRECTORY, operation="write", reason=str(refused)))
                self._fail(refused)
                return
            self.front.tell(steps)

    def tell(self, steps: list[KeeperStep]) -> None:
        """Send the response frames, and close connections."""
        self.world.flush_events()
        for step in steps:
            for number, frame in step.frames:
                if (connection := self.connections.get(number)) is not None:
                    connection.send(frame)
            for number in step.to_close:
                if (connection := self.connections.get(number)) is not None:
                    connection.close()

    def step(self, connection: ZookeeperConnection, frame: bytes) -> KeeperStep | None:
        """Serve one frame; malformed bytes close the connection."""
        if connection.is_closed:
            return None
        moment = self._moment()
        try:
            if not connection.has_session:
                connection.has_session = True
                return self.znode_state.connect(connection.number, connection.host, frame, moment)
            if self.znode_state.session_of(connection.number) is None:
                return None
            return self.znode_state.serve(connection.number, frame, moment)
        except MalformedMessage:
            connection.close()
            return None

    def _accept(self) -> ZookeeperConnection:
        self._connection_count += 1
        return ZookeeperConnection(self._connection_count, self, self.world.clock.monotonic_ms)

    def _moment(self) -> KeeperMoment:
        return KeeperMoment(self.world.clock.monotonic_ms(), self.world.clock.wall_ms())

    async def _secret(self) -> bytes:
        """Return the key from which session passwords are derived; clients can then resume sessions
        after a server restart.
        """
        if not self.world.disk.exists(SECRET_FILE):
            await self.world.disk.replace(
                SECRET_FILE, self.world.random("session secret").randbytes(SECRET_BYTES)
            )
        return self.world.disk.read(SECRET_FILE)

    def _fail(self, mistake: BaseException) -> None:
        if self._is_dead:
            return
        self.world.emit(NodeFailed(reason=f"{type(mistake).__name__}: {mistake}"))
        self.world.flush_events()
        self.abort()
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(mistake)
