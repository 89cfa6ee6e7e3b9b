"""One interface to the two kinds of cluster that are compared: Kafka's brokers and controller, and
the servers of lease_pid with their ZooKeeper.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from kraftsim.clients.reader import ReaderClient
from kraftsim.cluster.administration import create_topic, update_features
from kraftsim.cluster.lease_cluster import LeaseCluster
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.lab.comparison.applications import (
    TOPIC,
    Address,
    Application,
    IdempotentApplication,
    LeasingApplication,
    TransactionalApplication,
)
from kraftsim.lab.comparison.plan import BROKERS, ComparisonPlan, System, Writing
from kraftsim.lease_pid.client import read_all
from kraftsim.world.simulated import Host, Simulation

SESSION_MS: Final = 3000
"""The session time-out of a broker, in both."""
KAFKA_SETTINGS: Final = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "1000",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.ms": "-1",
    "kraftsim.frame.events": "false",
}


class Side(Protocol):
    """The interface of a cluster for the comparison."""

    @property
    def failures(self) -> list[str]:
        """Errors other than planned mishaps that ended nodes."""
        ...

    async def ready(self) -> None:
        """Wait until records can be written."""
        ...

    def application(
        self,
        host: Host,
        client_id: str,
        writer: int,
        predecessor: Application | None,
        acknowledged: list[str],
    ) -> Application:
        """Create an application that writes to its own partition."""
        ...

    async def keys(self, host: Host, writer: int) -> Sequence[str]:
        """Return the keys in a partition's log, as consumers see them."""
        ...

    def requests_of(self, application: Application) -> int:
        """Return how many requests an application has sent, if they are not counted elsewhere."""
        ...


class KafkaSide:
    """Three brokers and a controller of a release, with the settings of a design."""

    def __init__(self, system: System, simulation: Simulation, plan: ComparisonPlan) -> None:
        spec = ClusterSpec(
            brokers=BROKERS,
            release=system.release,
            seed=plan.seed,
            settings={**KAFKA_SETTINGS, **system.settings},
            node_settings=system.node_settings,
        )
        self._system = system
        self._simulation = simulation
        self._plan = plan
        self._cluster = SimulatedCluster(spec, simulation)
        self._cluster.start()

    @property
    def failures(self) -> list[str]:
        """Errors other than planned mishaps that ended nodes."""
        return self._cluster.failures

    async def ready(self) -> None:
        """Wait for the brokers, set the feature levels, and create the topic.

        Raises RuntimeError if a level is rejected.
        """
        await self._cluster.wait_until_ready()
        if self._system.features:
            refused = await update_features(
                self._cluster.addresses, self._system.features, downwards=True
            )
            if refused:
                raise RuntimeError(f"{self._system.name}: {refused}")
        await create_topic(self._cluster.addresses, TOPIC, self._plan.writers, BROKERS)

    def application(
        self,
        host: Host,
        client_id: str,
        writer: int,
        predecessor: Application | None,
        acknowledged: list[str],
    ) -> Application:
        """Create an application of the design's kind."""
        world, bootstrap = self._simulation.world_of(host), self._cluster.addresses
        if self._system.writing is Writing.TRANSACTIONAL:
            return TransactionalApplication(
                self._system, world, bootstrap, client_id, writer, acknowledged.append
            )
        return IdempotentApplication(self._system, world, bootstrap, client_id, writer)

    async def keys(self, host: Host, writer: int) -> Sequence[str]:
        """Read the committed records."""
        is_transactional = self._system.writing is Writing.TRANSACTIONAL
        reader = ReaderClient(
            self._simulation.world_of(host),
            bootstrap=self._cluster.addresses,
            client_id=f"{host.name}-reader",
            read_committed=is_transactional,
        )
        found = await reader.read_all(TOPIC, [writer])
        await reader.close()
        return [record.key for record in found]

    def requests_of(self, application: Application) -> int:
        """Return 0: their requests are counted from frame events."""
        return 0


class LeaseSide:
    """Three servers of lease_pid and a ZooKeeper."""

    def __init__(self, system: System, simulation: Simulation, plan: ComparisonPlan) -> None:
        self._simulation = simulation
        properties = {
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "replica.lag.time.max.ms": "1000",
            **system.settings,
        }
        self._cluster = LeaseCluster(
            simulation, brokers=BROKERS, topics={TOPIC: plan.writers}, properties=properties
        )
        self._cluster.start()

    @property
    def failures(self) -> list[str]:
        """Errors other than planned mishaps that ended servers."""
        return self._cluster.failures

    async def ready(self) -> None:
        """Wait until every partition has a leader."""
        await self._cluster.ready()

    def application(
        self,
        host: Host,
        client_id: str,
        writer: int,
        predecessor: Application | None,
        acknowledged: list[str],
    ) -> Application:
        """Create an application; a successor knows the producer id of its predecessor."""
        known_id = (
            predecessor.client.ids.get(writer)
            if isinstance(predecessor, LeasingApplication)
            else None
        )
        addresses: list[Address] = self._cluster.addresses
        return LeasingApplication(
            self._simulation.world_of(host), addresses, client_id, writer, known_id
        )

    async def keys(self, host: Host, writer: int) -> Sequence[str]:
        """Read the records that all in-sync replicas have."""
        found = await read_all(self._cluster.addresses, TOPIC, writer, f"{host.name}-reader")
        return [message.content.key.decode() for message in found]

    def requests_of(self, application: Application) -> int:
        """Return how many requests its connections have counted."""
        assert isinstance(application, LeasingApplication), "it was made here"
        return application.client.connections.requests_sent


def side_of(system: System, simulation: Simulation, plan: ComparisonPlan) -> Side:
    """Create the cluster of a design in a simulation."""
    return (
        LeaseSide(system, simulation, plan)
        if system.writing is Writing.LEASING
        else KafkaSide(system, simulation, plan)
    )
