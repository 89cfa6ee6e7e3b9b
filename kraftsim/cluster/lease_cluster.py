"""Servers of lease_pid and their ZooKeeper on simulated hosts, for comparisons, tests and
experiments.

Source: the lease_pid draft.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Final

from kraftsim.lease_pid.server import LeaseServer
from kraftsim.lease_pid.settings import Address, LeaseSettings
from kraftsim.world.simulated import Host, Simulation
from kraftsim.zookeeper.server import ZookeeperServer
from kraftsim.zookeeper.settings import ZookeeperSettings

ZOOKEEPER: Final = "zookeeper-1"
ZOOKEEPER_PORT: Final = 2181
PORT: Final = 9092
TICK_MS: Final = 500


class LeaseCluster:
    """`properties` apply to each server, in addition to its id and the list of servers.

    Call `start`, then run the simulation.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        brokers: int = 3,
        topics: Mapping[str, int],
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.simulation = simulation
        self.names = [f"broker-{number}" for number in range(1, brokers + 1)]
        self.addresses: list[Address] = [(name, PORT) for name in self.names]
        self.servers: dict[str, LeaseServer] = {}
        self.failures: list[str] = []
        self._properties = {
            "zookeeper.connect": f"{ZOOKEEPER}:{ZOOKEEPER_PORT}",
            "lease.brokers": ",".join(
                f"{number}@{name}:{PORT}" for number, name in enumerate(self.names, 1)
            ),
            "lease.topics": ",".join(f"{topic}:{count}" for topic, count in topics.items()),
            **(properties or {}),
        }
        self.hosts: dict[str, Host] = {
            name: simulation.add_host(name) for name in (ZOOKEEPER, *self.names)
        }
        simulation.on_restart = self._main_of

    def start(self) -> None:
        """Start every host."""
        for host in self.hosts.values():
            main = self._main_of(host)
            assert main is not None, "it is one of ours"
            self.simulation.spawn(host, main)

    async def ready(self) -> None:
        """Wait until every partition has a leader."""
        for name in self.names:
            while name not in self.servers:
                await _moment()
            await self.servers[name].ready()

    def leader(self, topic: str, partition: int) -> str | None:
        """Return which server leads a partition now."""
        for name, server in self.servers.items():
            replica = server.replicas.get((topic, partition))
            if replica is not None and replica.is_led and self.hosts[name].is_alive:
                return name
        return None

    def _main_of(self, host: Host) -> Coroutine[object, object, object] | None:
        if host.name == ZOOKEEPER:
            return self._zookeeper(host)
        return self._server(host) if host.name in self.names else None

    async def _zookeeper(self, host: Host) -> None:
        server = ZookeeperServer(
            self.simulation.world_of(host),
            ZookeeperSettings(host=ZOOKEEPER, port=ZOOKEEPER_PORT, tick_ms=TICK_MS),
        )
        await server.start()
        self.failures.append(f"{host.name}: {await server.failed()}")

    async def _server(self, host: Host) -> None:
        broker_id = self.names.index(host.name) + 1
        settings = LeaseSettings.parse({**self._properties, "broker.id": str(broker_id)})
        server = self.servers[host.name] = LeaseServer(self.simulation.world_of(host), settings)
        await server.start()
        self.failures.append(f"{host.name}: {await server.failed()}")


async def _moment() -> None:
    await asyncio.sleep(0.02)
