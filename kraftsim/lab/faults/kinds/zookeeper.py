"""Faults of ZooKeeper as its clients see it: late answers, old answers, and sessions that expire.

A server of an ensemble answers reads from its own tree, which may lag behind what another server
has committed, and a client may be connected to any of them. A session expires by ZooKeeper's
decision, not by the client's: its ephemeral znodes are gone before the client knows. A controller
may therefore act only together with a check of its controller epoch, and a broker must register
again. The faults of its process and its disk are those of any node.
"""

from collections.abc import Callable
from typing import Final

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import SERVER_PREFIX, Condition, SocketInjection, links_of
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.zookeeper_servers import intercept, later, server_of
from kraftsim.zookeeper.connection import ZookeeperConnection
from kraftsim.zookeeper.rules_keeper import KeeperStep, Replica
from kraftsim.zookeeper.server import ZookeeperServer
from protocol.codec.message_codec import compiled
from protocol.zookeeper.kafka_znodes import CONTROLLER
from protocol.zookeeper.op_codes import OpCode
from protocol.zookeeper.znodes import PathOnly, ZookeeperRequestHeader

MS_PER_SECOND: Final = 1000


class SlowAnswers:
    """Implements `kraftsim.lab.faults.zookeeper_servers.ServersBetween`."""

    def __init__(
        self, server: ZookeeperServer, delay_seconds: float, record_effect: Callable[[str], None]
    ) -> None:
        self._server = server
        self._delay_seconds = delay_seconds
        self._bite = record_effect
        self._waiting: list[list[KeeperStep]] = []

    def step(self, connection: ZookeeperConnection, frame: bytes) -> KeeperStep | None:
        """Serve a frame as usual."""
        return self._server.step(connection, frame)

    def tell(self, steps: list[KeeperStep]) -> None:
        """Notify later."""
        if any(step.frames for step in steps):
            self._bite("an answer was delayed")
        self._waiting.append(steps)
        later(self._delay_seconds, self._notify_first)

    async def leave(self) -> None:
        """Deliver all delayed answers and notifications."""
        self._server.front = self._server
        while self._waiting:
            self._notify_first()

    def _notify_first(self) -> None:
        if self._waiting and not self._server.is_dead:
            self._server.tell(self._waiting.pop(0))


def slow_zookeeper(injection: Injection) -> None:
    """ZooKeeper's answers and watch notifications are delayed: all changes take long, and a client
    whose wait exceeds its limit tries another server.

    Answers stay in order. Over sockets a proxy delays what the server sends. With more than two
    thirds of a session's time-out its client closes the connection, and reconnects with the same
    session.

    Delay every answer; it is effective with the first.
    """
    intercept(
        injection,
        lambda server: SlowAnswers(
            server, injection.integer("delay_ms") / MS_PER_SECOND, injection.record_effect
        ),
    )


async def slow_zookeeper_over_sockets(injection: SocketInjection) -> None:
    """Delay in the proxy all that ZooKeeper servers send; without ZooKeeper it has no effect."""
    nodes = injection.field.node_names
    links = [
        link
        for name in nodes
        if name.startswith(SERVER_PREFIX)
        for link in links_of(f"{name}>*", nodes)
    ]
    await injection.while_it_lasts(
        links, Condition(latency_ms=injection.integer("delay_ms")), injection.integer("duration_ms")
    )


SLOW_ZOOKEEPER = FaultKind(
    name="slow-zookeeper",
    title="a slow ZooKeeper",
    family=Family.ZOOKEEPER,
    inject=slow_zookeeper,
    over_sockets=slow_zookeeper_over_sockets,
    through_proxy=True,
    modes=EVERYWHERE,
    aim=Aim.ALL,
    triggers_on=("time", "event", "state"),
    params={"delay_ms": 500, "duration_ms": 5000},
    draws={"delay_ms": Between(20, 5000), "duration_ms": Between(500, 8000)},
)


PERMILLE: Final = 1000
READS: Final = (OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN_2)


class _Held:
    """An answer that waits until the follower has applied a change, and the frames behind it."""

    def __init__(
        self, connection: ZookeeperConnection, zxid: int, frames: list[tuple[int, bytes]]
    ) -> None:
        self.connection = connection
        self.zxid = zxid
        self.frames = frames
        self.behind: list[bytes] = []


class LaggingFollower:
    """Implements `kraftsim.lab.faults.zookeeper_servers.ServersBetween`."""

    def __init__(
        self,
        server: ZookeeperServer,
        connections: list[int],
        lag_seconds: float,
        record_effect: Callable[[str], None],
    ) -> None:
        self._server = server
        self._lag_seconds = lag_seconds
        self._bite = record_effect
        self._replica = Replica(server.znode_state.tree.copy(), server.znode_state.last_zxid)
        self._held: dict[int, _Held] = {}
        self._clients = connections
        self._is_leaving = False
        for connection in connections:
            server.znode_state.serve_from(self._replica, connection)

    def step(self, connection: ZookeeperConnection, frame: bytes) -> KeeperStep | None:
        """Serve a frame: those of the follower's clients from its own state, each after the one in
        front of it is answered.
        """
        znode_state = self._server.znode_state
        if znode_state.is_served_from(connection.number) is not self._replica:
            return self._server.step(connection, frame)
        if connection.number in self._held:
            self._held[connection.number].behind.append(frame)
            return None
        self._look(frame)
        step = self._server.step(connection, frame)
        if step is None or znode_state.is_served_from(connection.number) is None:
            return step
        until = (
            step.txns[-1][0].zxid
            if step.txns
            else znode_state.last_zxid
            if _op_code(frame) == OpCode.SYNC
            else 0
        )
        if until > self._replica.zxid:
            own = [each for each in step.frames if each[0] == connection.number]
            step.frames = [each for each in step.frames if each[0] != connection.number]
            self._held[connection.number] = _Held(connection, until, own)
        return step

    def tell(self, steps: list[KeeperStep]) -> None:
        """Notify the leader's clients now; the follower receives the change now, and applies it
        later.
        """
        txns = [txn for step in steps for txn in step.txns]
        for header, record in txns:
            self._replica.receive(header, record)
        self._server.tell(steps)
        if txns and self._is_leaving:
            self._make(txns[-1][0].zxid)
        elif txns:
            later(self._lag_seconds, lambda: self._make(txns[-1][0].zxid))

    async def leave(self) -> None:
        """Catch up: apply everything and send pending answers; the clients move to the leader once
        nothing is pending.
        """
        self._is_leaving = True
        self._make(self._server.znode_state.last_zxid)

    def _make(self, zxid: int) -> None:
        znode_state = self._server.znode_state
        if self._server.is_dead or self._server.front is not self:
            return
        notifications = znode_state.follow(self._replica, zxid)
        ready = [held for held in self._held.values() if held.zxid <= self._replica.zxid]
        if notifications.frames or ready:
            self._bite("a client was notified late of a change")
        for held in ready:
            del self._held[held.connection.number]
        self._server.tell([notifications, *(KeeperStep(frames=held.frames) for held in ready)])
        for held in reversed(ready):
            self._server.serve_first(held.connection, held.behind)
        if self._is_leaving and self._replica.zxid == znode_state.last_zxid:
            for connection in self._clients:
                if znode_state.is_served_from(connection) is self._replica:
                    znode_state.serve_from(None, connection)
            self._server.front = self._server

    def _look(self, frame: bytes) -> None:
        """Become effective if a client is about to read stale data."""
        path = _path(frame) if _op_code(frame) in READS else None
        if path is not None and self._replica.differs_at(path, self._server.znode_state.tree):
            self._bite(f"a client read stale data of {path}")


def _op_code(frame: bytes) -> int:
    """Return the request type of a frame; -1 for bytes that are no request: the server rejects
    those.
    """
    try:
        header: ZookeeperRequestHeader = compiled(ZookeeperRequestHeader, 0).decode(frame, 0)[0]
    except ValueError:
        return -1
    return header.op_code


def _path(frame: bytes) -> str | None:
    """Return the path of a frame's znode."""
    try:
        found: PathOnly = compiled(PathOnly, 0).decode(
            frame, compiled(ZookeeperRequestHeader, 0).decode(frame, 0)[1]
        )[0]
    except ValueError:
        return None
    return found.path


def stale_znodes(injection: Injection) -> None:
    """Some clients are connected to a ZooKeeper follower that lags: they read stale data, and
    watches fire late.

    ZooKeeper's guarantees for each client hold: its write is answered once the follower has applied
    it, and its later reads are not older; `sync` waits for all committed changes. But two clients
    may see different states, and one may not see a change that the other reports. A client that
    reconnects gets a server that does not lag.

    Move so many of a thousand connected clients to the follower; it is effective when one reads
    stale data, or is notified late.

    Source: ZooKeeper Programmer's Guide (consistency guarantees: "simultaneously consistent
    cross-client views" is the one it does not give).
    """

    def put(server: ZookeeperServer) -> LaggingFollower:
        there = [
            number
            for number in sorted(server.connections)
            if server.znode_state.session_of(number) is not None
        ]
        clients = [
            number
            for number in there
            if injection.random.randrange(PERMILLE) < injection.integer("permille")
        ]
        return LaggingFollower(
            server, clients, injection.integer("lag_ms") / MS_PER_SECOND, injection.record_effect
        )

    intercept(injection, put)


STALE_ZNODES = FaultKind(
    name="stale-znodes",
    title="a lagging ZooKeeper follower",
    family=Family.ZOOKEEPER,
    inject=stale_znodes,
    aim=Aim.ALL,
    triggers_on=("time", "event", "state"),
    params={"lag_ms": 1000, "permille": 500, "duration_ms": 5000},
    draws={
        "lag_ms": Between(20, 5000),
        "permille": Between(200, 1000),
        "duration_ms": Between(500, 8000),
    },
)


ANY_CONTROLLER, ANYBODY, AT_CONTACT = "controller", "anybody", "contacting"


def session_loss(injection: Injection) -> None:
    """ZooKeeper expires a session though its client is alive, as after a pause that was too long.

    The client is notified at its next request: its ephemeral znodes are deleted, a controller loses
    its role, and a broker has to register again. `whose` selects the session: that of the
    controller, of any client with an ephemeral znode, or of the client that contacts ZooKeeper as
    the fault fires, which may have none yet.

    Expire one session now.

    Source: ZooKeeper Programmer's Guide (sessions), kafka.zookeeper.ZooKeeperClient.reinitialize,
    KAFKA-5642.
    """
    found = server_of(injection)
    if found is None:
        return
    host, server = found
    znode = server.znode_state.tree.get(CONTROLLER)
    sessions = [session for session, paths in server.znode_state.tree.ephemerals.items() if paths]
    if injection.text("whose") == ANY_CONTROLLER and znode is not None and znode.owner in sessions:
        sessions = [znode.owner]
    client = injection.trigger_context.host
    if injection.text("whose") == AT_CONTACT and client is not None:
        address = injection.simulation.host(client).address
        sessions = [
            session
            for number, connection in sorted(server.connections.items())
            if connection.host == address
            and (session := server.znode_state.session_of(number)) is not None
        ]
    if not sessions:
        return
    session = injection.random.choice(sorted(sessions))
    paths = server.znode_state.tree.ephemerals.get(session, ())
    injection.record_effect(f"{len(paths)} ephemeral znodes were deleted with session {session:#x}")
    injection.simulation.spawn(host, server.end_session(session))


SESSION_LOSS = FaultKind(
    name="session-loss",
    title="an expired ZooKeeper session",
    family=Family.ZOOKEEPER,
    inject=session_loss,
    aim=Aim.ALL,
    triggers_on=("time", "event", "state"),
    params={"whose": ANYBODY},
    draws={"whose": OneOf((ANY_CONTROLLER, ANYBODY))},
)


FAULTS = (
    SLOW_ZOOKEEPER,
    STALE_ZNODES,
    SESSION_LOSS,
)
