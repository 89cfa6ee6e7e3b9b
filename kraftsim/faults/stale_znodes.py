"""Some clients read from a follower of ZooKeeper that is behind: they see what was so a while ago, and hear late of what they watch.

Each client's own order holds, as ZooKeeper promises: what it changes is answered once the follower has made it, and what it reads behind that is not
older; `sync` waits for all that is decided. But two clients may see two moments, and one that was told of a change by another may not find it yet.
A connection that is lost is made again to a server that is not behind.
Source: ZooKeeper Programmer's Guide (consistency guarantees: "simultaneously consistent cross-client views" is the one it does not give).
"""

from collections.abc import Callable
from typing import Final

from kraftsim.core.zookeeper.keeper import Step
from kraftsim.core.zookeeper.replica import Replica
from kraftsim.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.faults.strike import Strike
from kraftsim.faults.zookeeper_servers import later, stand_between
from kraftsim.node.zookeeper.connection import ZookeeperConnection
from kraftsim.node.zookeeper.server import ZookeeperServer
from protocol.message_codec import compiled
from protocol.zookeeper.op_codes import OpCode
from protocol.zookeeper.sessions import ZookeeperRequestHeader
from protocol.zookeeper.znodes import PathOnly

MS_PER_SECOND: Final = 1000
PERMILLE: Final = 1000
READS: Final = (OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN_2)


class _Held:
    """An answer that waits until the follower has made a change, and the frames that came behind it."""

    def __init__(self, connection: ZookeeperConnection, zxid: int, frames: list[tuple[int, bytes]]) -> None:
        self.connection = connection
        self.zxid = zxid
        self.frames = frames
        self.behind: list[bytes] = []


class LaggingFollower:
    """Implements `kraftsim.faults.zookeeper_servers.Between`."""

    def __init__(self, server: ZookeeperServer, connections: list[int], lag_seconds: float, bite: Callable[[str], None]) -> None:
        self._server = server
        self._lag_seconds = lag_seconds
        self._bite = bite
        self._replica = Replica(server.keeper.tree.copy(), server.keeper.last_zxid)
        self._held: dict[int, _Held] = {}
        self._clients = connections
        self._is_leaving = False
        for connection in connections:
            server.keeper.serve_from(self._replica, connection)

    def step(self, connection: ZookeeperConnection, frame: bytes) -> Step | None:
        """Serve a frame: of the follower's clients from what it knows, and none before the one in front of it is answered."""
        keeper = self._server.keeper
        if keeper.is_served_from(connection.number) is not self._replica:
            return self._server.step(connection, frame)
        if connection.number in self._held:
            self._held[connection.number].behind.append(frame)
            return None
        self._look(frame)
        step = self._server.step(connection, frame)
        if step is None or keeper.is_served_from(connection.number) is None:
            return step
        until = step.txns[-1][0].zxid if step.txns else keeper.last_zxid if _op_code(frame) == OpCode.SYNC else 0
        if until > self._replica.zxid:
            own = [each for each in step.frames if each[0] == connection.number]
            step.frames = [each for each in step.frames if each[0] != connection.number]
            self._held[connection.number] = _Held(connection, until, own)
        return step

    def tell(self, steps: list[Step]) -> None:
        """Tell the leader's clients now; let the follower hear of what is in the log, and make it later."""
        txns = [txn for step in steps for txn in step.txns]
        for header, record in txns:
            self._replica.hear(header, record)
        self._server.tell(steps)
        if txns and self._is_leaving:
            self._make(txns[-1][0].zxid)
        elif txns:
            later(self._lag_seconds, lambda: self._make(txns[-1][0].zxid))

    async def leave(self) -> None:
        """Be behind no more: make everything and answer what waits; once nothing is under way the clients go back to the leader."""
        self._is_leaving = True
        self._make(self._server.keeper.last_zxid)

    def _make(self, zxid: int) -> None:
        keeper = self._server.keeper
        if self._server.is_dead or self._server.front is not self:
            return
        told = keeper.follow(self._replica, zxid)
        ready = [held for held in self._held.values() if held.zxid <= self._replica.zxid]
        if told.frames or ready:
            self._bite("a client heard late of a change")
        for held in ready:
            del self._held[held.connection.number]
        self._server.tell([told, *(Step(frames=held.frames) for held in ready)])
        for held in reversed(ready):
            self._server.serve_first(held.connection, held.behind)
        if self._is_leaving and self._replica.zxid == keeper.last_zxid:
            for connection in self._clients:
                if keeper.is_served_from(connection) is self._replica:
                    keeper.serve_from(None, connection)
            self._server.front = self._server

    def _look(self, frame: bytes) -> None:
        """Bite if a client is about to be told what is not so any more."""
        path = _path(frame) if _op_code(frame) in READS else None
        if path is not None and self._replica.differs_at(path, self._server.keeper.tree):
            self._bite(f"a client was told of {path} what is not so any more")


def _op_code(frame: bytes) -> int:
    """Return what a frame asks for; -1 for bytes that are no request: the server judges those."""
    try:
        header: ZookeeperRequestHeader = compiled(ZookeeperRequestHeader, 0).decode(frame, 0)[0]
    except ValueError:
        return -1
    return header.op_code


def _path(frame: bytes) -> str | None:
    """Return the znode that a frame asks for."""
    try:
        found: PathOnly = compiled(PathOnly, 0).decode(frame, compiled(ZookeeperRequestHeader, 0).decode(frame, 0)[1])[0]
    except ValueError:
        return None
    return found.path


def strike(strike: Strike) -> None:
    """Let so many of a thousand clients that are connected now be the follower's; it bites when one reads what is not so any more, or hears late."""

    def put(server: ZookeeperServer) -> LaggingFollower:
        there = [number for number in sorted(server.connections) if server.keeper.session_of(number) is not None]
        clients = [number for number in there if strike.random.randrange(PERMILLE) < strike.integer("permille")]
        return LaggingFollower(server, clients, strike.integer("lag_ms") / MS_PER_SECOND, strike.bite)

    stand_between(strike, put)


FAULT = FaultKind(
    name="stale-znodes",
    title="a ZooKeeper follower that is behind",
    family=Family.ZOOKEEPER,
    strike=strike,
    aim=Aim.ALL,
    strikes_on=("time", "event", "state"),
    params={"lag_ms": 1000, "permille": 500, "duration_ms": 5000},
    draws={"lag_ms": Between(20, 5000), "permille": Between(200, 1000), "duration_ms": Between(500, 8000)},
)
