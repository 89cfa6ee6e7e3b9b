"""The scenario environment over sockets and real time: for a cluster of processes and for an
embedded one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from kraftsim.clients.producer import ProducerClient
from kraftsim.clients.producer_id_client import InitProducerIdClient
from kraftsim.clients.reader import ReaderClient as OwnReader
from kraftsim.clients.rules_producer_steps import ProducerSettings
from kraftsim.cluster.administration import (
    TransactionQueries,
    change_voter,
    create_topic,
    elect_preferred_leaders,
    emit_in_sync,
    leader_of,
    update_features,
    voters_of,
    wait_for_replicas,
)
from kraftsim.cluster.cluster_fault_driver import ClusterFaultDriver, RealCluster
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.disk_faults import lose_disk
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.exact_client import ExactClient
from kraftsim.cluster.launch import client_parts_of
from kraftsim.cluster.processes import STOP_SECONDS, ProcessCluster
from kraftsim.cluster.proxy.control import Held
from kraftsim.cluster.scenario import (
    ClientHost,
    Mode,
    ProducerDriver,
    ProducerIdClient,
    ReaderDriver,
    here,
)
from kraftsim.cluster.spec import RELEASE_KEY
from kraftsim.cluster.zookeeper_queries import (
    compared_from_outside,
    metadata_in,
    migrated_until,
    take_back,
)
from kraftsim.events.event import Event
from kraftsim.events.runs import FaultArmed, FaultEnded, FaultInjected, MetadataLogBegun
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    FAULTS,
    Aim,
    AtTime,
    Family,
    Fault,
    FaultKind,
    OnFrame,
)
from kraftsim.lab.faults.field import SocketInjection, Watch
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.world.interface import World, stream
from kraftsim.world.real.world import RealWorld, real_world

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the world)


# --------------------------------------------------------------------------------------------------
# All faults of one run over sockets: each waits for its time or its frame, is injected, and ends at
# the latest when all faults are healed

BETWEEN_NODES: Final = (Family.NETWORK, Family.PROTOCOL)


def can_inject(fault: Fault, mode: str) -> bool:
    """Return whether a fault can be injected over sockets: its kind supports the mode, and its
    trigger is a time or a frame.
    """
    return not obstacle(fault, mode)


def obstacle(fault: Fault, mode: str) -> str:
    """Return why a fault cannot be injected over sockets; empty if it can."""
    kind = FAULTS.named(fault.kind)
    if mode not in kind.modes or kind.over_sockets is None:
        return f"a {kind.name} cannot be injected into real nodes"
    if not isinstance(fault.trigger, AtTime | OnFrame):
        return "real nodes show no such moment: a fault waits for a time or for a frame"
    if fault.armed_after_ms:
        return "a fault is armed later only in simulation"
    return ""


def wants_proxy(faults: Iterable[Fault], mode: str) -> bool:
    """Return whether a fault needs the proxy between the nodes."""
    kinds = [FAULTS.named(fault.kind) for fault in faults]
    return (
        any(kind.family in BETWEEN_NODES or kind.through_proxy for kind in kinds)
        or follows_frames(faults)
        or judges_requests(faults, mode)
    )


def judges_requests(faults: Iterable[Fault], mode: str) -> bool:
    """Return whether the proxy must read requests: embedded nodes do that themselves."""
    return mode == Mode.PROCESSES and any(
        FAULTS.named(fault.kind).judges_requests for fault in faults
    )


def follows_frames(faults: Iterable[Fault]) -> bool:
    """Return whether a fault waits for a frame, or is about one."""
    return any(
        isinstance(fault.trigger, OnFrame) or FAULTS.named(fault.kind).family is Family.PROTOCOL
        for fault in faults
    )


class FieldSchedule:
    """The faults that can be injected. Times count from `inject`."""

    def __init__(
        self, cluster: RealCluster, faults: Sequence[Fault], emit: Callable[[Event], None]
    ) -> None:
        self.faults = tuple(faults)
        self.field = ClusterFaultDriver(cluster)
        self._seed = cluster.spec.seed
        self._emit = emit
        self._strikes: list[SocketInjection] = []
        self._waiting: dict[SocketInjection, asyncio.Task[None]] = {}
        self._under_way: dict[SocketInjection, asyncio.Task[None]] = {}

    def inject(self) -> None:
        """Arm every fault: it waits for its trigger."""
        for fault in self.faults:
            kind = FAULTS.named(fault.kind)
            self._emit(
                FaultArmed(fault=fault.kind, target=fault.target, trigger=str(fault.trigger))
            )
            numbers = stream(
                self._seed, "fault", 1, msgspec.json.encode(fault, order="sorted").decode()
            )
            injection = SocketInjection(
                fault, kind.params, self.field, random=numbers, emit=self._emit
            )
            self._waiting[injection] = asyncio.ensure_future(self._carry_out(injection, kind))

    async def finished(self) -> None:
        """Return when every fault has been injected and is over.

        Raises the exception of a fault that failed.
        """
        await asyncio.gather(*self._waiting.values(), *self._under_way.values())

    async def heal(self) -> None:
        """Inject no more faults, end those that last, and restart nodes that are down.

        Raises the exception of a fault that failed.
        """
        for task in self._waiting.values():
            task.cancel()
        for injection in self._under_way:
            injection.end()
        done = await asyncio.gather(
            *self._waiting.values(), *self._under_way.values(), return_exceptions=True
        )
        await self.field.heal()
        for result in done:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    async def close(self) -> None:
        """Stop waiting, without healing anything."""
        tasks = (*self._waiting.values(), *self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.field.close()

    async def _carry_out(self, injection: SocketInjection, kind: FaultKind) -> None:
        held = await self._triggered(injection, kind)
        self._under_way[injection] = self._waiting.pop(injection)
        fault = injection.fault
        try:
            await injection.understand(is_one_host=kind.aim is Aim.HOST)
            self._emit(
                FaultInjected(fault=fault.kind, target=injection.target, trigger=str(fault.trigger))
            )
            assert kind.over_sockets is not None, (
                "faults that cannot be injected here were left out"
            )
            await kind.over_sockets(injection)
            self._emit(FaultEnded(fault=fault.kind, target=injection.target))
        finally:
            if held is not None:
                await held.let_pass()

    async def _triggered(self, injection: SocketInjection, kind: FaultKind) -> Held | None:
        """Wait for the time, or for the frame, which is held then."""
        trigger = injection.fault.trigger
        if isinstance(trigger, AtTime):
            await asyncio.sleep(trigger.at_ms / 1000)
            return None
        assert isinstance(trigger, OnFrame), "other triggers cannot be waited for over sockets"
        watch = Watch(
            api_key=trigger.api_key,
            is_response=trigger.is_response,
            client=trigger.client,
            server=trigger.server,
            nth=trigger.nth,
            moment=trigger.moment,
            sent_by_node=kind.family is Family.PROCESS
            and injection.fault.target == AT_THE_TRIGGER,  # clients have no process of ours
        )
        held = await self.field.next_frame(watch)
        injection.frame, injection.host = held, held.sender
        return held


HARNESS = "harness"
LOOK_SECONDS = 0.2
METADATA_LOG = f"__cluster_metadata-0/{0:020}.log"
ANSWERING_SECONDS = 60.0
"""Time-out of the cluster's own readiness probe; the bounds of `phases` are shorter."""


class SocketEnvironment:
    """Runs a scenario over sockets.

    Faults that need a simulated world are left out: see `kraftsim.cluster.scenario`.
    """

    def __init__(
        self,
        cluster: ProcessCluster | EmbeddedCluster,
        mode: Mode,
        directory: RunDirectory,
        schedule: Sequence[Fault],
        workload: Mapping[str, int],
    ) -> None:
        self.cluster: RealCluster = cluster
        self.mode = mode
        self.patience = cluster.patience if isinstance(cluster, ProcessCluster) else 1.0
        self.spec = cluster.spec
        self.seed = cluster.spec.seed
        self._directory = directory
        self._workload = workload
        self._worlds: list[RealWorld] = []
        self._harness = self._world_of(HARNESS)
        self._faults = FieldSchedule(cluster, schedule, self.emit)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults of the schedule."""
        return self._faults.faults

    def random(self, purpose: str) -> "Random":
        """Return the stream of random numbers for a purpose."""
        return self._harness.random(purpose)

    def emit(self, event: Event) -> None:
        """Emit an event to the harness's log."""
        self._harness.emit(event)
        self._harness.flush_events()

    def workload(self, parameter: str) -> int:
        """Return the value of a workload parameter."""
        return self._workload[parameter]

    def now_seconds(self) -> float:
        """Return seconds since the run began."""
        return self._harness.clock.monotonic_ns() / 1e9

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def gather(self, *work: Awaitable[object]) -> None:
        """Run coroutines concurrently; the first failure cancels the rest and is raised."""
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def inject(self) -> None:
        """Arm every fault: it waits for its trigger."""
        self._faults.inject()

    async def heal(self) -> None:
        """Inject no more faults, end those that last, and restart nodes that are down."""
        await self._faults.heal()

    async def restart(
        self, name: str, *, release: str | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Stop a node, and start it again with its new configuration."""
        self._faults.field.retired.discard(name)
        self.cluster.tell(
            name, {**(settings or {}), **({RELEASE_KEY: release} if release is not None else {})}
        )
        if not self.cluster.is_down(name):
            await self.cluster.stop_node(name, STOP_SECONDS * self.patience)
        if self.cluster.is_down(name):
            await self.cluster.restart_node(name)

    async def kill(self, name: str) -> None:
        """Kill a node."""
        self._faults.field.retired.add(name)
        await self.cluster.kill_node(name)

    async def update_features(
        self, levels: Mapping[str, int], *, downwards: bool = False
    ) -> Mapping[str, str]:
        """Update feature levels; return the errors of those that could not change."""
        return await update_features(self._addresses, levels, downwards=downwards)

    async def voters(self) -> tuple[str, ...] | None:
        """Return the voters of the quorum, as the leader reports them."""
        return await voters_of(self.spec)

    async def change_voter(self, name: str, *, joins: bool) -> bool:
        """Ask the leader once to add or remove a voter; return whether that is committed."""
        return await change_voter(self.spec, name, joins=joins)

    def is_down(self, name: str) -> bool:
        """Return whether a node does not run."""
        return self.cluster.is_down(name) or self.cluster.has_ended(name)

    async def wait_for_leader(self) -> None:
        """Return when a controller reports that it is active.

        In ZooKeeper mode, and after a migration was rolled back, the controller is a broker, which
        brokers report.
        """
        if any(name not in self._faults.field.retired for name in self.spec.controller_names):
            await leader_of(self.spec)
        else:
            await self.wait_for_brokers()

    async def wait_for_brokers(self) -> None:
        """Return when every broker answers and sees every other one as alive."""
        await self.cluster.answering(timeout_seconds=ANSWERING_SECONDS * self.patience)

    async def wait_for_controllers(self) -> None:
        """Return at once: what a controller has applied cannot be observed from outside."""

    async def wait_for_dual_write(self) -> None:
        """Return when dual write has begun: the offset in /migration advances with each record of
        the log.
        """
        servers = self._zookeeper_servers
        migrated_offset = -1
        while (
            migrated_offset <= 0
            or await migrated_until(self._harness, servers) <= migrated_offset + 1
        ):
            migrated_offset = (
                migrated_offset
                if migrated_offset > 0
                else await migrated_until(self._harness, servers)
            )
            await asyncio.sleep(LOOK_SECONDS)

    async def zookeeper_metadata(self) -> MetadataImage:
        """Return the metadata in ZooKeeper, as soon as it answers."""
        while (found := await metadata_in(self._harness, self._zookeeper_servers)) is None:
            await asyncio.sleep(LOOK_SECONDS)
        return found

    async def compare_with_zookeeper(self, before: MetadataImage | None = None) -> None:
        """Read ZooKeeper and the log of a controller until both were read at one offset, and emit
        the differences.
        """
        logs = [self._directory.data(name) / METADATA_LOG for name in self.spec.controller_names]
        while (
            compared := await compared_from_outside(
                self._harness, self._zookeeper_servers, logs, before
            )
        ) is None:
            await asyncio.sleep(LOOK_SECONDS)
        for each in compared:
            self.emit(each)

    async def give_up_migration(self) -> None:
        """Stop the KRaft controllers for good, and delete their controller and migration znodes."""
        self._faults.field.retired.update(self.spec.controller_names)
        for name in self.spec.controller_names:
            if not self.cluster.is_down(name):
                await self.cluster.stop_node(name, STOP_SECONDS)
        await take_back(self._harness, self._zookeeper_servers)

    async def format_new_quorum(self, metadata_log: int) -> None:
        """Start the KRaft controllers with empty data directories: a new quorum of the same
        cluster.
        """
        names = self.spec.controller_names
        self.emit(MetadataLogBegun(metadata_log=metadata_log, controllers=",".join(names)))
        for name in names:
            lose_disk(self._directory.data(name))
            self._faults.field.retired.discard(name)
            await self.cluster.restart_node(name)

    async def create_topic(self, topic: str, partitions: int, replicas: int = 1) -> None:
        """Create a topic and wait for its leaders and replicas."""
        await create_topic(self._addresses, topic, partitions, replicas)

    async def wait_for_replicas(self, topic: str, partitions: int) -> None:
        """Return when all replicas are in sync, and emit them as events."""
        emit_in_sync(self.emit, topic, await wait_for_replicas(self._addresses, topic, partitions))

    async def elect_preferred_leaders(self) -> bool:
        """Send a preferred leader election to a broker chosen by the seed."""
        return await elect_preferred_leaders(
            *self._harness.random("elections").choice(self._addresses)
        )

    def producer(self, client_id: str, settings: ProducerSettings | None = None) -> ProducerDriver:
        """Return a new producer: librdkafka for processes, kraftsim's own for an embedded
        cluster.
        """
        if self.mode is Mode.PROCESSES:
            from kraftsim.cluster.librdkafka import LibrdkafkaProducer

            in_flight = (settings or ProducerSettings()).max_in_flight_requests_per_connection
            return LibrdkafkaProducer(
                self.spec.bootstrap, client_id, self._world_of(client_id), in_flight
            )
        return ProducerClient(
            self._world_of(client_id),
            bootstrap=self._addresses,
            client_id=client_id,
            settings=settings,
            rules=client_parts_of(self.spec).idempotent_producer,
        )

    def reader(self, client_id: str, *, read_committed: bool = False) -> ReaderDriver:
        """Return a new reader: librdkafka for processes, kraftsim's own for an embedded cluster."""
        if self.mode is Mode.PROCESSES:
            from kraftsim.cluster.librdkafka import LibrdkafkaReader

            return LibrdkafkaReader(
                self.spec.bootstrap,
                client_id,
                self._world_of(client_id),
                read_committed=read_committed,
            )
        return OwnReader(
            self._world_of(client_id),
            bootstrap=self._addresses,
            client_id=client_id,
            read_committed=read_committed,
        )

    def producer_id_client(self, client_id: str, *, broker: str | None = None) -> ProducerIdClient:
        """Return a new producer-id client, kraftsim's own in every mode."""
        known = (
            self._addresses
            if broker is None
            else [(self.spec.node(broker).host, self.spec.node(broker).port)]
        )
        return InitProducerIdClient(
            self._world_of(client_id), bootstrap=known, client_id=client_id, retry_backoff_ms=20
        )

    def questions(self, client_id: str) -> TransactionQueries:
        """Return a client of the harness that queries the state of transactions."""
        return TransactionQueries(self._harness, self._addresses, client_id)

    def exact_client(self, client_id: str, topic: str) -> ExactClient:
        """Return a client of the harness that sends exact requests."""
        return ExactClient(self._harness, self._addresses, client_id, topic)

    def client_host(self, name: str) -> ClientHost:
        """Return a new client host for an application; its clients are kraftsim's own in both
        modes.
        """
        world = self._world_of(name)
        parts = client_parts_of(self.spec)
        return ClientHost(
            name=name,
            world=world,
            bootstrap=self._addresses,
            frame_events=False,
            parts=parts,
            run_there=here,
        )

    async def leave(self) -> None:
        """Disconnect from the cluster."""
        await self._faults.close()

    def close(self) -> None:
        """Close the event logs of harness and clients."""
        for world in self._worlds:
            world.close()
        self._worlds.clear()

    @property
    def _addresses(self) -> list[tuple[str, int]]:
        return [
            (node.host, node.port)
            for node in (self.spec.node(name) for name in self.spec.broker_names)
        ]

    @property
    def _zookeeper_servers(self) -> list[tuple[str, int]]:
        return [
            (node.host, node.port)
            for node in (self.spec.node(name) for name in self.spec.zookeeper_names)
        ]

    def _world_of(self, name: str) -> World:
        world = real_world(
            run=self.spec.run,
            node=name,
            incarnation=1,
            data_dir=self._directory.data(name),
            events_dir=self._directory.events,
            seed=self.seed,
            started_ns=self.cluster.started_ns,
        )
        self._worlds.append(world)
        return world
