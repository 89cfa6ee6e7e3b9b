"""A ZooKeeper server and ZooKeeper-mode brokers in virtual time, and helpers for the tests of their
controller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kraftsim.events.event import Event
from kraftsim.releases.release import release
from kraftsim.server.broker import Broker
from kraftsim.server.config import NodeConfig
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.parts import Parts
from kraftsim.world.simulated import Simulation
from kraftsim.zookeeper.client import ZookeeperClient
from kraftsim.zookeeper.controller import ZookeeperController
from kraftsim.zookeeper.server import ZookeeperServer
from kraftsim.zookeeper.settings import ZookeeperSettings
from tests.node.brokers import BROKER_PORT, Client

T = TypeVar("T")
ZOOKEEPER_HOST, ZOOKEEPER_PORT = "zookeeper-1", 2181
SESSION_MS = 6000


def broker_config(broker_id: int, host: str, settings: dict[str, str]) -> NodeConfig:
    return NodeConfig.parse(
        {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{host}:{BROKER_PORT}",
            "zookeeper.connect": f"{ZOOKEEPER_HOST}:{ZOOKEEPER_PORT}",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "offsets.topic.replication.factor": "1",
            **settings,
        }
    )


class Harness:
    """`brokers` are the running ones, by host."""

    def __init__(
        self, simulation: Simulation, broker_count: int, release_name: str, settings: dict[str, str]
    ) -> None:
        self.simulation = simulation
        self.settings = settings
        self.brokers: dict[str, Broker] = {}
        self.events: list[tuple[str, Event]] = []
        self._parts = Parts.for_release(release(release_name))
        self.names = [f"broker-{number}" for number in range(1, broker_count + 1)]
        simulation.observe(
            lambda node, incarnation, n, t_ns, event: self.events.append((node, event))
        )
        for name in (ZOOKEEPER_HOST, *self.names, "client"):
            simulation.add_host(name)
        simulation.on_restart = lambda host: self._run_node(host.name)
        simulation.spawn(ZOOKEEPER_HOST, self._run_node(ZOOKEEPER_HOST))

    async def _run_node(self, name: str) -> None:
        world = self.simulation.world_of(name)
        if name == ZOOKEEPER_HOST:
            server = ZookeeperServer(
                world, ZookeeperSettings(port=ZOOKEEPER_PORT, host=name, tick_ms=500)
            )
            await server.start()
            await asyncio.Event().wait()
            return
        broker = Broker(
            world, broker_config(int(name.split("-")[1]), name, self.settings), self._parts
        )
        await broker.start()
        self.brokers[name] = broker
        await broker.failed()

    def start(self) -> None:
        for name in self.names:
            self.simulation.spawn(name, self._run_node(name))
            self.wait_for(name)

    def wait_for(self, name: str) -> None:
        """Wait until a broker serves."""
        self.until(lambda: name in self.brokers and self.brokers[name].is_decided)

    def until(self, holds: Callable[[], bool], limit_s: float = 60) -> None:
        self.simulation.run_until(holds, limit_s=limit_s)
        assert self.simulation.troubles == []

    def controller_of(self, name: str) -> ZookeeperController:
        # attr-defined: a broker in ZooKeeper mode
        found = self.brokers[name].source.controller  # type: ignore[attr-defined]
        assert isinstance(found, ZookeeperController)
        return found

    @property
    def leader(self) -> str | None:
        """The host whose broker is the controller."""
        return next((name for name in self.brokers if self.controller_of(name).is_active), None)

    def run(
        self,
        work: Callable[[Client], Awaitable[T]],
        broker: str | None = None,
        limit_s: float = 120,
    ) -> T:
        """Run a client with a broker, the controller if none is named."""

        async def connected() -> T:
            connection = PeerConnection(broker or self.leader or "", BROKER_PORT, client_id="test")
            await connection.connect()
            try:
                return await work(Client(connection))
            finally:
                connection.close()

        result = self.simulation.run_until(
            self.simulation.spawn("client", connected()), limit_s=limit_s
        )
        assert self.simulation.troubles == []
        return result

    def znodes(self, work: Callable[[ZookeeperClient], Awaitable[T]]) -> T:
        """Change znodes as another client."""

        async def connected() -> T:
            client = ZookeeperClient(
                self.simulation.world_of("client"), [(ZOOKEEPER_HOST, ZOOKEEPER_PORT)]
            )
            client.start()
            try:
                return await work(client)
            finally:
                await client.close()

        result = self.simulation.run_until(self.simulation.spawn("client", connected()), limit_s=60)
        return result

    def emitted(self, kind: type[Event], node: str | None = None) -> list[Any]:
        return [
            event for where, event in self.events if type(event) is kind and node in (None, where)
        ]

    def kill(self, name: str) -> None:
        self.simulation.kill(name)
        self.brokers.pop(name, None)

    def restart(self, name: str) -> None:
        self.simulation.restart(name)
        self.wait_for(name)

    def stop(self, name: str) -> None:
        """Stop a broker cleanly."""
        broker = self.brokers.pop(name)
        self.simulation.run_until(self.simulation.spawn(name, broker.stop()), limit_s=120)
        self.simulation.kill(name)


@contextmanager
def zookeeper_harness(
    broker_count: int = 3, *, seed: int = 1, release_name: str = "3.9", **settings: str
) -> Iterator[Harness]:
    with Simulation(seed) as simulation:
        harness = Harness(
            simulation,
            broker_count,
            release_name,
            {name.replace("_", "."): value for name, value in settings.items()},
        )
        harness.start()
        yield harness
