"""A cluster in virtual time: every node on a simulated host of its own, and the environment in
which scenarios run there.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from kraftsim.clients.producer import ProducerClient
from kraftsim.clients.producer_id_client import InitProducerIdClient
from kraftsim.clients.reader import ReaderClient, ReadRecord
from kraftsim.clients.rules_producer_steps import ProducerSettings
from kraftsim.cluster.administration import (
    TransactionQueries,
    change_voter,
    create_topic,
    elect_preferred_leaders,
    emit_in_sync,
    update_features,
    voters_of,
    wait_for_replicas,
)
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.exact_client import ExactClient
from kraftsim.cluster.launch import Node, build_node, client_parts_of, parse_node
from kraftsim.cluster.readiness import wait_until_answering
from kraftsim.cluster.request_tap import RequestTaps, node_client_ids
from kraftsim.cluster.scenario import (
    ClientHost,
    Mode,
    ProducerDriver,
    ProducerIdClient,
    ReaderDriver,
)
from kraftsim.cluster.spec import RELEASE_KEY, ClusterSpec, NodeSpec
from kraftsim.cluster.zookeeper_queries import compare, image_of, take_back
from kraftsim.events.event import Event
from kraftsim.events.runs import MetadataLogBegun
from kraftsim.lab.faults.arm import FaultSchedule
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.injection import NANOSECONDS_PER_MILLISECOND
from kraftsim.lab.faults.kinds.request_faults import make_carrier_known
from kraftsim.lab.faults.zookeeper_servers import Found, make_known
from kraftsim.metadata.rules_features import ActivationRefused
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.migration.migration import Migration
from kraftsim.server.broker import Broker
from kraftsim.server.combined import broker_of, controller_of
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.events import NodeFailed
from kraftsim.world.simulated import Host, Simulation
from kraftsim.zookeeper.rules_znodes import Znodes
from kraftsim.zookeeper.server import ZookeeperServer
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the simulation)

T = TypeVar("T")


class Program(Protocol):
    """What runs on a host that is no node of the cluster."""

    def main(self, host: Host) -> Coroutine[object, object, object] | None:
        """Return what the next process of the host runs; None: nothing."""
        ...

    def ending(self) -> Coroutine[object, object, object] | None:
        """Return its clean end; None if it does not run."""
        ...

    def start(self) -> None:
        """Start it if it is down and should run."""
        ...


SEGMENT_SUFFIX = ".log"
METADATA_DIRECTORY = "__cluster_metadata-0/"
STOP_SECONDS = 10.0
"""How long a node may take to stop cleanly before it is killed."""
LOOK_SECONDS = 0.02
"""How often the harness checks whether there is a leader."""
SIMULATED_SETTINGS = {"kraftsim.frame.events": "true", "log.dirs": "/data"}
"""Frames are in the log of a simulation: they cost little in virtual time and make its report
readable.
"""


class SimulatedCluster:
    """The nodes of a spec on simulated hosts."""

    def __init__(self, spec: ClusterSpec, simulation: Simulation) -> None:
        self.spec = spec
        self.simulation = simulation
        self.nodes: dict[str, Node] = {}
        self.hosts: dict[str, Host] = {name: simulation.add_host(name) for name in spec.node_names}
        self.programs: dict[str, Program] = {}
        """What runs on other hosts, by host."""
        self.failures: list[str] = []
        """Errors that ended nodes and were neither a fault nor a broken disk: always a bug of
        kraftsim.
        """
        self._came_up: dict[str, int] = {}
        """The last incarnation of each node that has started: one that is still starting has
        nothing to stop cleanly yet.
        """
        self._names = {host.name: name for name, host in self.hosts.items()}
        make_known(simulation, self._zookeeper)
        self._request_taps = RequestTaps(
            node_client_ids(spec),
            seed=simulation.seed,
            now_ms=lambda: simulation.now_ns / NANOSECONDS_PER_MILLISECOND,
            later=lambda delay_ms, work: simulation.triggers.at(
                simulation.now_ns + int(delay_ms * NANOSECONDS_PER_MILLISECOND), lambda _: work()
            ),
        )
        make_carrier_known(simulation, self._request_taps)
        simulation.on_restart = self._next_of
        simulation.on_stop = self._ending_of

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where the brokers listen, for clients inside the simulation."""
        return [(node.host, node.port) for node in self._specs(self.spec.broker_names)]

    @property
    def leader(self) -> str | None:
        """The active controller, which is a broker in ZooKeeper mode; None while there is none."""
        return next(
            (
                name
                for name in (*self.spec.controller_names, *self.spec.broker_names)
                if self._is_active(name)
            ),
            None,
        )

    def applied_by_controllers(self) -> list[int]:
        """Return the last offset that each controller has applied; 0 for one that is down or
        starting. Retired ones do not count.
        """
        found = []
        for name in self.spec.controller_names:
            if self.hosts[name].is_retired:
                continue
            controller = controller_of(self.nodes.get(name))
            is_up = self._came_up.get(name) == self.hosts[name].process.incarnation
            found.append(
                min(controller.raft.applied_end_offset, controller.raft.high_watermark or 0)
                if is_up and controller is not None
                else 0
            )
        return found

    def migrations(self) -> list[tuple[str, Migration]]:
        """Return the controllers with the migration enabled that are up, with their migration
        states.
        """
        controllers = (
            (name, controller_of(self.nodes.get(name)))
            for name in self.spec.controller_names
            if self.hosts[name].is_alive
        )
        return [
            (name, controller.migration)
            for name, controller in controllers
            if controller is not None and controller.migration is not None
        ]

    def znodes(self) -> Znodes:
        """Return the present content of ZooKeeper; nothing while it is down."""
        found = self._zookeeper()
        return (
            {}
            if found is None
            else {
                path: (znode.data, znode.stat())
                for path, znode in found[1].znode_state.tree.znodes.items()
            }
        )

    def _zookeeper(self) -> Found | None:
        """Return the running ZooKeeper server, with its host."""
        for name in self.spec.zookeeper_names:
            node, host = self.nodes.get(name), self.hosts[name]
            if (
                isinstance(node, ZookeeperServer)
                and host.is_alive
                and self._came_up.get(name) == host.process.incarnation
            ):
                return host, node
        return None

    def start(self) -> None:
        """Start every node; nothing runs before the simulation does."""
        for host in self.hosts.values():
            self.simulation.spawn(host, self._main_of(host))

    async def wait_until_ready(self) -> None:
        """Return when every broker answers and sees every other one as alive."""
        await wait_until_answering(self.addresses, brokers=self.spec.brokers)

    async def stop(self) -> None:
        """Stop brokers, then controllers, then ZooKeeper, cleanly; combined nodes all at once,
        because a broker that stops needs a quorum of controllers.
        """
        await asyncio.gather(
            *(
                self.simulation.spawn(self.hosts[name], ending)
                for name in self.spec.combined_names
                if (ending := self._ending_of(self.hosts[name])) is not None
            )
        )
        for name in (
            *self.spec.broker_names,
            *self.spec.controller_names,
            *self.spec.zookeeper_names,
        ):
            ending = self._ending_of(self.hosts[name])
            if ending is not None:
                await self.simulation.spawn(self.hosts[name], ending)

    def segment_files(self) -> dict[str, bytes]:
        """Return the bytes of every partition segment on the brokers' disks, by
        'NODE/TOPIC-PARTITION/FILE'.
        """
        found = {}
        for name in self.spec.broker_names:
            disk = self.hosts[name].durable
            found.update(
                {
                    f"{name}/{path}": bytes(disk.names[path].cache)
                    for path in sorted(disk.names)
                    if path.endswith(SEGMENT_SUFFIX)
                }
            )
        return found

    def metadata_files(self) -> dict[str, bytes]:
        """Return the bytes of the metadata log and its snapshots on the controllers' disks, by
        'NODE/__cluster_metadata-0/FILE'.
        """
        found = {}
        for name in self.spec.controller_names:
            disk = self.hosts[name].durable
            found.update(
                {
                    f"{name}/{path}": bytes(disk.names[path].cache)
                    for path in sorted(disk.names)
                    if path.startswith(METADATA_DIRECTORY)
                }
            )
        return found

    def without_a_directory(self) -> list[str]:
        """Return the brokers that go on without a log directory that has failed."""
        return [
            name
            for name, node in self.nodes.items()
            if self.hosts[name].is_alive
            and (broker := broker_of(node)) is not None
            and not all(each.is_online for each in broker.partitions.directories.all)
        ]

    def write_disks(self, directory: RunDirectory) -> None:
        """Copy every node's simulated disk to the run's directory, for inspection."""
        for name, host in self.hosts.items():
            for path in sorted(host.durable.names):
                target = directory.data(name) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(bytes(host.durable.names[path].cache))

    def _is_active(self, name: str) -> bool:
        node = self.nodes.get(name)
        controller = controller_of(node)
        if controller is None and isinstance(node, Broker) and node.zookeeper is not None:
            its_own = node.zookeeper.controller
            return its_own is not None and its_own.is_active and self.hosts[name].is_alive
        return controller is not None and controller.is_active and self.hosts[name].is_alive

    def _specs(self, names: Sequence[str]) -> list[NodeSpec]:
        return [self.spec.node(name, host_is_name=True) for name in names]

    def _next_of(self, host: Host) -> Coroutine[object, object, object] | None:
        """Return what the next process of a host runs."""
        if host.name in self._names:
            return self._main_of(host)
        program = self.programs.get(host.name)
        return None if program is None else program.main(host)

    async def _main_of(self, host: Host) -> None:
        name = self._names[host.name]
        properties = {
            **SIMULATED_SETTINGS,
            **self.spec.node(name, host_is_name=True).properties,
            **host.overrides,
        }
        if host.durable.is_replacement:
            # As with `kafka-storage format --no-initial-controllers`: it must not be taken for the
            # voter that had the disk before.
            properties.pop("kraftsim.initial.controllers", None)
        try:
            node = self.nodes[name] = build_node(
                parse_node(properties), self.simulation.world_of(host)
            )
            process = host.process
            self._request_taps.follow(
                name,
                node,
                lambda work: self.simulation.loop.schedule(process, self.simulation.now_ns, work),
            )
            await node.start()
            self._came_up[name] = host.process.incarnation
            error = await node.failed()
        except (OSError, ConfigError) as failure:
            self.simulation.world_of(host).emit(
                NodeFailed(reason=f"{type(failure).__name__}: {failure}")
            )
            error = failure
        incarnation = host.process.incarnation
        self.simulation.triggers.at(
            self.simulation.now_ns, lambda trigger_context: self._end(host, incarnation)
        )
        if not isinstance(error, OSError) and (
            incarnation == 1 or not isinstance(error, ConfigError | ActivationRefused)
        ):
            self.failures.append(f"{name}: {type(error).__name__}: {error}")
            self.simulation.violation("nodes-believe-the-truth", self.failures[-1], ())

    def _ending_of(self, host: Host) -> Coroutine[object, object, object] | None:
        """Return the clean shutdown of the node on a host; None for one that is down, starting, or
        stopping already.
        """
        if host.name in self.programs:
            return self.programs[host.name].ending()
        name = self._names.get(host.name)
        if name is None or not host.is_alive or self._came_up.get(name) != host.process.incarnation:
            return None
        del self._came_up[name]
        return self.nodes[name].stop()

    def _end(self, host: Host, incarnation: int) -> None:
        """End the process of a node that failed, as `kraftsim node` would."""
        if host.is_alive and host.process.incarnation == incarnation:
            self.simulation.kill(host)


class OnHost:
    """A client on a host of its own: each of its methods runs there, so that its connections and
    timers belong to that host.
    """

    def __init__(self, simulation: Simulation, host: Host) -> None:
        self._simulation = simulation
        self._host = host

    async def run(self, work: Coroutine[object, object, T]) -> T:
        """Run one method of the client on its host."""
        return await self._simulation.spawn(self._host, work)


class SimulatedProducer(OnHost):
    """kraftsim's own producer in virtual time."""

    def __init__(self, simulation: Simulation, host: Host, client: ProducerClient) -> None:
        super().__init__(simulation, host)
        self._client = client

    async def start(self) -> None:
        """Obtain a producer id."""
        await self.run(self._client.start())

    async def send(self, topic: str, partition: int, key: str, value: bytes) -> None:
        """Enqueue a record."""
        await self.run(self._client.send(topic, partition, key, value))

    async def flush(self, timeout_seconds: float) -> int:
        """Wait for records in flight."""
        return await self.run(self._client.flush(timeout_seconds))

    async def close(self) -> None:
        """End the client."""
        await self.run(self._client.close())


class SimulatedReader(OnHost):
    """kraftsim's own reader in virtual time."""

    def __init__(self, simulation: Simulation, host: Host, client: ReaderClient) -> None:
        super().__init__(simulation, host)
        self._client = client

    async def read_all(self, topic: str, partitions: Sequence[int]) -> list[ReadRecord]:
        """Return every record of the partitions."""
        return await self.run(self._client.read_all(topic, partitions))

    async def close(self) -> None:
        """End the client."""
        await self.run(self._client.close())


class SimulatedProducerIdClient(OnHost):
    """kraftsim's own producer-id client in virtual time."""

    def __init__(self, simulation: Simulation, host: Host, client: InitProducerIdClient) -> None:
        super().__init__(simulation, host)
        self._client = client

    async def ask(self, count: int) -> list[int]:
        """Return fresh producer ids."""
        return await self.run(self._client.ask(count))

    async def ask_once(self) -> ErrorCode:
        """Return the error of one answer."""
        return await self.run(self._client.ask_once())

    async def close(self) -> None:
        """End the client."""
        await self.run(self._client.close())


class SimulatedEnvironment:
    """The scenario environment in virtual time.

    The scenario itself runs on the simulation's harness host.
    """

    mode = Mode.SIM
    patience = 1.0

    def __init__(
        self, cluster: SimulatedCluster, schedule: FaultSchedule, workload: Mapping[str, int]
    ) -> None:
        self.cluster = cluster
        self.spec = cluster.spec
        self.seed = cluster.spec.seed
        self._simulation = cluster.simulation
        self._world = self._simulation.world_of(self._simulation.harness)
        self._schedule = schedule
        self._workload = workload

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults of the schedule."""
        return self._schedule.faults

    def random(self, purpose: str) -> "Random":
        """Return the stream of random numbers for a purpose."""
        return self._world.random(purpose)

    def emit(self, event: Event) -> None:
        """Emit an event to the harness's log."""
        self._world.emit(event)

    def workload(self, parameter: str) -> int:
        """Return the value of a workload parameter."""
        return self._workload[parameter]

    @property
    def parameters(self) -> Mapping[str, int]:
        """All workload parameters."""
        return self._workload

    def now_seconds(self) -> float:
        """Return virtual seconds since the run began."""
        return self._simulation.now_ns / 1e9

    async def sleep(self, seconds: float) -> None:
        """Sleep in virtual time."""
        await asyncio.sleep(seconds)

    async def gather(self, *work: Awaitable[object]) -> None:
        """Run coroutines concurrently; the first failure cancels the rest and is raised."""
        await asyncio.gather(*work)

    def inject(self) -> None:
        """Arm the schedule."""
        self._schedule.arm()

    async def heal(self) -> None:
        """End every fault, and restart nodes that are down, or work without a failed log directory:
        a broker uses it again only after a restart.
        """
        self._schedule.heal()
        for name in self.cluster.without_a_directory():
            await self.restart(name)
        for host in self.cluster.hosts.values():
            if not host.is_alive:
                self._simulation.restart(host)
        for program in self.cluster.programs.values():
            program.start()

    def add_fault(self, fault: Fault) -> None:
        """Arm one more fault now; `heal` ends it, too. A time trigger counts from the beginning."""
        self._schedule.add(fault)

    async def restart(
        self, name: str, *, release: str | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Stop a node, and start it again with its new configuration."""
        host = self.cluster.hosts[name]
        host.is_retired = False
        host.own_release = host.own_release if release is None else release
        host.overrides.update(
            {**(settings or {}), **({RELEASE_KEY: release} if release is not None else {})}
        )
        process = host.process
        stopping = self._simulation.stop(host)
        if stopping is not None:
            await asyncio.wait((stopping,), timeout=STOP_SECONDS)  # noqa: TID251  (one task: no order to depend on)
        if host.process is process:
            if host.is_alive:
                self._simulation.kill(host)
            self._simulation.restart(host)

    async def kill(self, name: str) -> None:
        """Kill a node."""
        self.cluster.hosts[name].is_retired = True
        self._simulation.kill(self.cluster.hosts[name])

    async def update_features(
        self, levels: Mapping[str, int], *, downwards: bool = False
    ) -> Mapping[str, str]:
        """Update feature levels; return the errors of those that could not change."""
        return await update_features(self.cluster.addresses, levels, downwards=downwards)

    async def voters(self) -> tuple[str, ...] | None:
        """Return the voters of the quorum, as the leader reports them."""
        return await voters_of(self.spec, host_is_name=True)

    async def change_voter(self, name: str, *, joins: bool) -> bool:
        """Ask the leader once to add or remove a voter; return whether that is committed."""
        return await change_voter(self.spec, name, joins=joins, host_is_name=True)

    def is_down(self, name: str) -> bool:
        """Return whether a node does not run."""
        return not self.cluster.hosts[name].is_alive

    async def wait_for_leader(self) -> None:
        """Return when a controller is active."""
        while self.cluster.leader is None:
            await asyncio.sleep(LOOK_SECONDS)

    async def wait_for_brokers(self) -> None:
        """Return when every broker answers and sees every other one as alive."""
        await self.cluster.wait_until_ready()

    async def wait_for_controllers(self) -> None:
        """Return when every controller has applied the highest committed offset that any of them
        knows now.
        """
        committed = max(self.cluster.applied_by_controllers(), default=0)
        while min(self.cluster.applied_by_controllers(), default=0) < committed:
            await asyncio.sleep(LOOK_SECONDS)

    async def wait_for_dual_write(self) -> None:
        """Return when a KRaft controller writes its changes to ZooKeeper, too (dual write)."""
        while not any(migration.mirrored for _, migration in self.cluster.migrations()):
            await asyncio.sleep(LOOK_SECONDS)

    async def zookeeper_metadata(self) -> MetadataImage:
        """Return the metadata in ZooKeeper, as soon as that is up."""
        while not (znodes := self.cluster.znodes()):
            await asyncio.sleep(LOOK_SECONDS)
        return image_of(znodes)

    async def compare_with_zookeeper(self, before: MetadataImage | None = None) -> None:
        """Wait until ZooKeeper agrees with the metadata log, and emit the differences."""
        while (
            compared := compare(self.cluster.znodes(), self.cluster.migrations(), before)
        ) is None:
            await asyncio.sleep(LOOK_SECONDS)
        for each in compared:
            self.emit(each)

    async def give_up_migration(self) -> None:
        """Stop the KRaft controllers for good, and delete their controller and migration znodes."""
        for name in self.spec.controller_names:
            host = self.cluster.hosts[name]
            host.is_retired = True
            if host.is_alive:
                self._simulation.kill(host)
        server = self.spec.node(self.spec.zookeeper_names[0], host_is_name=True)
        await take_back(self._world, [(server.host, server.port)])

    async def format_new_quorum(self, metadata_log: int) -> None:
        """Start the KRaft controllers with empty disks: a new quorum of the same cluster."""
        names = self.spec.controller_names
        self.emit(MetadataLogBegun(metadata_log=metadata_log, controllers=",".join(names)))
        for name in names:
            host = self.cluster.hosts[name]
            host.durable.lose_everything()
            host.durable.is_replacement = False  # formatted as at the first start
            host.is_retired = False
            self._simulation.restart(host)

    async def create_topic(self, topic: str, partitions: int, replicas: int = 1) -> None:
        """Create a topic and wait for its leaders and replicas."""
        await self.cluster.wait_until_ready()
        await create_topic(self.cluster.addresses, topic, partitions, replicas)

    async def wait_for_replicas(self, topic: str, partitions: int) -> None:
        """Return when all replicas are in sync, and emit them as events."""
        emit_in_sync(
            self.emit, topic, await wait_for_replicas(self.cluster.addresses, topic, partitions)
        )

    async def elect_preferred_leaders(self) -> bool:
        """Send a preferred leader election to a broker chosen by the seed."""
        return await elect_preferred_leaders(
            *self._world.random("elections").choice(self.cluster.addresses)
        )

    def producer(self, client_id: str, settings: ProducerSettings | None = None) -> ProducerDriver:
        """Return a new producer on a host of its own."""
        host = self._simulation.add_host(client_id)
        client = ProducerClient(
            self._simulation.world_of(host),
            bootstrap=self.cluster.addresses,
            client_id=client_id,
            settings=settings,
            frame_events=True,
            rules=client_parts_of(self.spec).idempotent_producer,
        )
        return SimulatedProducer(self._simulation, host, client)

    def reader(self, client_id: str, *, read_committed: bool = False) -> ReaderDriver:
        """Return a new reader on a host of its own."""
        host = self._simulation.add_host(client_id)
        world = self._simulation.world_of(host)
        client = ReaderClient(
            world,
            bootstrap=self.cluster.addresses,
            client_id=client_id,
            frame_events=True,
            read_committed=read_committed,
        )
        return SimulatedReader(self._simulation, host, client)

    def producer_id_client(self, client_id: str, *, broker: str | None = None) -> ProducerIdClient:
        """Return a new producer-id client on a host of its own."""
        host = self._simulation.add_host(client_id)
        node = None if broker is None else self.spec.node(broker, host_is_name=True)
        known = self.cluster.addresses if node is None else [(node.host, node.port)]
        client = InitProducerIdClient(
            self._simulation.world_of(host),
            bootstrap=known,
            client_id=client_id,
            retry_backoff_ms=20,
        )
        return SimulatedProducerIdClient(self._simulation, host, client)

    def questions(self, client_id: str) -> TransactionQueries:
        """Return a client of the harness that queries the state of transactions."""
        return TransactionQueries(self._world, self.cluster.addresses, client_id)

    def exact_client(self, client_id: str, topic: str) -> ExactClient:
        """Return a client of the harness that sends exact requests."""
        return ExactClient(self._world, self.cluster.addresses, client_id, topic)

    def client_host(self, name: str) -> ClientHost:
        """Return a new host for an application."""
        host = self._simulation.add_host(name)

        async def there(work: Coroutine[object, object, T]) -> T:
            return await self._simulation.spawn(host, work)

        return ClientHost(
            name=name,
            world=self._simulation.world_of(host),
            bootstrap=self.cluster.addresses,
            frame_events=True,
            parts=client_parts_of(self.spec),
            run_there=there,
        )
