"""A simulated cluster with brokers in ZooKeeper mode, and the operations of its scenarios."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from kraftsim.clients.producer import ProducerClient
from kraftsim.clients.producer_id_client import InitProducerIdClient
from kraftsim.clients.reader import ReaderClient
from kraftsim.cluster.administration import create_topic, wait_for_replicas
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.server.broker import Broker
from kraftsim.world.simulated import Simulation
from kraftsim.zookeeper.broker_mode import ZookeeperMode
from kraftsim.zookeeper.client import ZookeeperClient

T = TypeVar("T")
TOPIC, PARTITIONS = "t", 3
LIMIT_S = 600.0
EMPTY = ("zookeeper.connect", "zookeeper.metadata.migration.enable", "process.roles")
"""Settings that an empty value removes."""


class ZooKeeperHarness:
    """One cluster, and a client on its own host."""

    def __init__(
        self,
        *,
        zookeeper: bool = True,
        controllers: int = 0,
        brokers: int = 3,
        release: str = "3.9",
        seed: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        lag = {"replica.lag.time.max.ms": "3000", **(settings or {})}
        self.spec = ClusterSpec(
            zookeeper=zookeeper,
            controllers=controllers,
            brokers=brokers,
            release=release,
            seed=seed,
            settings=lag,
        )
        self.simulation = Simulation(seed, run="steps")
        self.cluster = SimulatedCluster(self.spec, self.simulation)
        self.host = self.simulation.add_host("client")
        self.bitten: list[str] = []
        self.emitted: list[tuple[str, Event]] = []
        self.simulation.book.observe(
            lambda node, incarnation, n, t_ns, event: self.emitted.append((node, event))
        )
        self.cluster.start()

    def run(
        self, program: Callable[["ZooKeeperHarness"], Awaitable[T]], limit_s: float = LIMIT_S
    ) -> T:
        """Run a scenario to its end; no node may have failed by a bug."""
        result = self.simulation.run_until(
            self.simulation.spawn(self.simulation.harness, _run_program(program, self)),
            limit_s=limit_s,
        )
        assert self.cluster.failures == []
        assert [str(trouble) for trouble in self.simulation.troubles] == []
        return result

    @property
    def now_s(self) -> float:
        """Virtual seconds since the start."""
        return self.simulation.now_ns / 1e9

    def broker(self, name: str) -> Broker:
        """Return the current incarnation of a broker."""
        found = self.cluster.nodes[name]
        assert isinstance(found, Broker), name
        return found

    def mode(self, name: str) -> ZookeeperMode:
        """Return its ZooKeeper-mode part."""
        found = self.broker(name).zookeeper
        assert found is not None, name
        return found

    async def ready(self) -> None:
        """Wait until every broker knows every other one."""
        await self.cluster.wait_until_ready()

    async def topic(self, name: str = TOPIC, partitions: int = PARTITIONS) -> None:
        """Create a topic with replicas on all brokers."""
        await create_topic(self.cluster.addresses, name, partitions, self.spec.brokers)

    async def in_sync(self) -> None:
        """Wait until all replicas are in sync at every broker."""
        await wait_for_replicas(self.cluster.addresses, TOPIC, PARTITIONS)

    async def produce(self, name: str, count: int = 60) -> None:
        """Send records idempotently, and check that all are acknowledged."""

        async def send() -> int:
            client = ProducerClient(
                self.simulation.world_of(self.host),
                bootstrap=self.cluster.addresses,
                client_id=name,
            )
            await client.start()
            for number in range(count):
                await client.send(
                    TOPIC, number % PARTITIONS, str(number), f"{name}-{number}".encode()
                )
            left = await client.flush(60)
            await client.close()
            return left

        assert await self.simulation.spawn(self.host, send()) == 0, (
            f"everything of {name} is acknowledged"
        )

    async def read(self) -> list[str]:
        """Return the contents of the topic, sorted."""

        async def read() -> list[str]:
            client = ReaderClient(
                self.simulation.world_of(self.host),
                bootstrap=self.cluster.addresses,
                client_id="reader",
            )
            found = await client.read_all(TOPIC, range(PARTITIONS))
            await client.close()
            return sorted((each.value or b"").decode() for each in found)

        return await self.simulation.spawn(self.host, read())

    async def producer_ids(self, count: int) -> list[int]:
        """Return new producer ids from the brokers in turn."""

        async def ask() -> list[int]:
            world = self.simulation.world_of(self.host)
            client = InitProducerIdClient(
                world, bootstrap=self.cluster.addresses, client_id="asker", retry_backoff_ms=20
            )
            found = await client.ask(count)
            await client.close()
            return found

        return await self.simulation.spawn(self.host, ask())

    async def with_zookeeper(self, work: Callable[[ZookeeperClient], Awaitable[T]]) -> T:
        """Change znodes directly."""

        async def by_hand() -> T:
            node = self.spec.node("zookeeper-1", host_is_name=True)
            client = ZookeeperClient(self.simulation.world_of(self.host), [(node.host, node.port)])
            client.start()
            try:
                return await work(client)
            finally:
                await client.close()

        return await self.simulation.spawn(self.host, by_hand())

    def kill(self, name: str) -> None:
        """End a node as SIGKILL does."""
        self.simulation.kill(self.cluster.hosts[name])

    def start(self, name: str) -> None:
        """Start a node that is down."""
        self.simulation.restart(self.cluster.hosts[name])

    def part(self, one: str, other: str) -> Callable[[str], None]:
        """Partition two nodes."""
        network = self.simulation.network
        record_effect = self.bitten.append
        for source, target in ((one, other), (other, one)):
            network.block(source, target, record_effect)
        return record_effect

    def join(self, one: str, other: str, record_effect: Callable[[str], None]) -> None:
        """Heal all partitions."""
        for source, target in ((one, other), (other, one)):
            self.simulation.network.unblock(source, target, record_effect)

    async def stop(self, name: str) -> None:
        """Stop a node cleanly."""
        host = self.cluster.hosts[name]
        ending = self.cluster._ending_of(host)
        assert ending is not None, f"{name} is up"
        await self.simulation.spawn(host, ending)
        self.simulation.kill(host)

    async def restart_with(self, name: str, settings: Mapping[str, str | None]) -> None:
        """Restart a node with other settings, and wait until all replicas are in sync; None removes
        a setting.
        """
        await self.stop(name)
        host = self.cluster.hosts[name]
        host.overrides.update(
            {
                key: "" if value is None else value
                for key, value in settings.items()
                if value is not None or key in EMPTY
            }
        )
        self.start(name)
        await asyncio.sleep(1)
        await self.ready()
        await self.in_sync()


async def _run_program(
    program: Callable[[ZooKeeperHarness], Awaitable[T]], stage: ZooKeeperHarness
) -> T:
    return await program(stage)
