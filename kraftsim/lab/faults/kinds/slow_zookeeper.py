"""ZooKeeper's answers and watch notifications are delayed: all changes take long, and a client
whose wait exceeds its limit tries another server.

Answers stay in order. Over sockets a proxy delays what the server sends. With more than two thirds
of a session's time-out its client closes the connection, and reconnects with the same session.
"""

from collections.abc import Callable
from typing import Final

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.lab.faults.field import SERVER_PREFIX, Condition, SocketInjection, links_of
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.zookeeper_servers import intercept, later
from kraftsim.zookeeper.connection import ZookeeperConnection
from kraftsim.zookeeper.rules_keeper import KeeperStep
from kraftsim.zookeeper.server import ZookeeperServer

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


def inject(injection: Injection) -> None:
    """Delay every answer; it is effective with the first."""
    intercept(
        injection,
        lambda server: SlowAnswers(
            server, injection.integer("delay_ms") / MS_PER_SECOND, injection.record_effect
        ),
    )


async def over_sockets(injection: SocketInjection) -> None:
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


FAULT = FaultKind(
    name="slow-zookeeper",
    title="a slow ZooKeeper",
    family=Family.ZOOKEEPER,
    inject=inject,
    over_sockets=over_sockets,
    through_proxy=True,
    modes=EVERYWHERE,
    aim=Aim.ALL,
    triggers_on=("time", "event", "state"),
    params={"delay_ms": 500, "duration_ms": 5000},
    draws={"delay_ms": Between(20, 5000), "duration_ms": Between(500, 8000)},
)
