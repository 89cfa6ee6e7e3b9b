"""The stage over sockets and real time: for a cluster of processes and for an embedded one."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.exact_client import ExactClient
from kraftsim.cluster.features import update_features
from kraftsim.cluster.field_of_cluster import RealCluster
from kraftsim.cluster.field_schedule import FieldSchedule
from kraftsim.cluster.launch import client_parts_of
from kraftsim.cluster.processes import STOP_SECONDS, ProcessCluster
from kraftsim.cluster.quorum_question import leader_of
from kraftsim.cluster.scenario import Mode
from kraftsim.cluster.spec import RELEASE_KEY
from kraftsim.cluster.stable_ends import TransactionQuestions
from kraftsim.cluster.topics import create_topic, elect_preferred_leaders, note_in_sync, wait_for_replicas
from kraftsim.cluster.voters import change_voter, voters_of
from kraftsim.cluster.workload import IdAsker, ProducerDriver, ReaderDriver
from kraftsim.cluster.workplace import Workplace, here
from kraftsim.cluster.zookeeper_question import compared_from_outside, migrated_until, take_back
from kraftsim.core.clients.producer_steps import ProducerSettings
from kraftsim.events.event import Event
from kraftsim.faults.fault import Fault
from kraftsim.node.clients import InitProducerIdClient, ProducerClient
from kraftsim.node.clients import ReaderClient as OwnReader
from kraftsim.world.interface import World
from kraftsim.world.real.world import RealWorld, real_world

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the world)

HARNESS = "harness"
LOOK_SECONDS = 0.2
METADATA_LOG = f"__cluster_metadata-0/{0:020}.log"
ANSWERING_SECONDS = 60.0
"""Patience of the cluster's own probe; the bounds of `phases` are shorter."""


class RealStage:
    """Plays over sockets. Faults that only a simulated world can have are left out: see `kraftsim.cluster.scenario`."""

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
        self.spec = cluster.spec
        self.seed = cluster.spec.seed
        self._directory = directory
        self._workload = workload
        self._worlds: list[RealWorld] = []
        self._harness = self._world_of(HARNESS)
        self._faults = FieldSchedule(cluster, schedule, self.note)

    def random(self, purpose: str) -> "Random":
        """Return the stream of random numbers for a purpose."""
        return self._harness.random(purpose)

    def note(self, event: Event) -> None:
        """Add a fact to the harness's event log."""
        self._harness.note(event)
        self._harness.flush_events()

    def workload(self, knob: str) -> int:
        """Return what a knob of the workload stands at."""
        return self._workload[knob]

    def now_seconds(self) -> float:
        """Return seconds since the run began."""
        return self._harness.clock.monotonic_ns() / 1e9

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def gather(self, *work: Awaitable[object]) -> None:
        """Run work side by side; the first failure cancels the rest and is raised."""
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def inject(self) -> None:
        """Let every fault wait for its trigger."""
        self._faults.inject()

    async def mend(self) -> None:
        """Let nothing strike any more, end what lasts, and start again what is down."""
        await self._faults.mend()

    async def restart(self, name: str, *, release: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        """Stop a node, and start it again with what it is told from now on."""
        self.cluster.tell(name, {**(settings or {}), **({RELEASE_KEY: release} if release is not None else {})})
        if not self.cluster.is_down(name):
            await self.cluster.stop_node(name, STOP_SECONDS)
        if self.cluster.is_down(name):
            await self.cluster.restart_node(name)

    async def kill(self, name: str) -> None:
        """End a node at once."""
        await self.cluster.kill_node(name)

    async def update_features(self, levels: Mapping[str, int], *, downwards: bool = False) -> Mapping[str, str]:
        """Ask for other levels of features; return why some could not change."""
        return await update_features(self._addresses, levels, downwards=downwards)

    async def voters(self) -> tuple[str, ...] | None:
        """Return which controllers vote, as whoever leads tells it."""
        return await voters_of(self.spec)

    async def change_voter(self, name: str, *, joins: bool) -> bool:
        """Ask whoever leads once for one voter more or less; tell whether that is so."""
        return await change_voter(self.spec, name, joins=joins)

    def is_down(self, name: str) -> bool:
        """Tell whether a node does not run."""
        return self.cluster.is_down(name) or self.cluster.has_ended(name)

    async def wait_for_leader(self) -> None:
        """Return when a controller says that it leads. Without controllers a broker is it: those that answer know which one."""
        if self.spec.controllers:
            await leader_of(self.spec)
        else:
            await self.wait_for_brokers()

    async def wait_for_brokers(self) -> None:
        """Return when every broker answers and knows every other one as alive."""
        await self.cluster.answering(timeout_seconds=ANSWERING_SECONDS)

    async def wait_for_controllers(self) -> None:
        """Return at once: from outside nobody sees how much a controller has applied."""

    async def wait_for_dual_write(self) -> None:
        """Return when ZooKeeper is kept in step: the offset in /migration moves with each record of the log."""
        servers = self._zookeeper_servers
        copied_until = -1
        while copied_until <= 0 or await migrated_until(self._harness, servers) <= copied_until + 1:
            copied_until = copied_until if copied_until > 0 else await migrated_until(self._harness, servers)
            await asyncio.sleep(LOOK_SECONDS)

    async def compare_with_zookeeper(self) -> None:
        """Read ZooKeeper and the log of a controller until both were read at one offset, and note in what they differ."""
        logs = [self._directory.data(name) / METADATA_LOG for name in self.spec.controller_names]
        while (compared := await compared_from_outside(self._harness, self._zookeeper_servers, logs)) is None:
            await asyncio.sleep(LOOK_SECONDS)
        self.note(compared)

    async def give_up_migration(self) -> None:
        """Stop the controllers of KRaft for good, and take out of ZooKeeper what they claim there."""
        for name in self.spec.controller_names:
            if not self.cluster.is_down(name):
                await self.cluster.stop_node(name, STOP_SECONDS)
        await take_back(self._harness, self._zookeeper_servers)

    async def create_topic(self, topic: str, partitions: int, replicas: int = 1) -> None:
        """Create a topic and wait for its leaders and replicas."""
        await create_topic(self._addresses, topic, partitions, replicas)

    async def wait_for_replicas(self, topic: str, partitions: int) -> None:
        """Return when all replicas are in sync, and note them."""
        note_in_sync(self.note, topic, await wait_for_replicas(self._addresses, topic, partitions))

    async def elect_preferred_leaders(self) -> bool:
        """Ask a broker, drawn by the seed, for preferred leaders."""
        return await elect_preferred_leaders(*self._harness.random("elections").choice(self._addresses))

    def producer(self, client_id: str, settings: ProducerSettings | None = None) -> ProducerDriver:
        """Return a new producer: librdkafka for processes, our own for an embedded cluster."""
        if self.mode is Mode.PROCESSES:
            from kraftsim.cluster.librdkafka import LibrdkafkaProducer

            in_flight = (settings or ProducerSettings()).max_in_flight_requests_per_connection
            return LibrdkafkaProducer(self.spec.bootstrap, client_id, self._world_of(client_id), in_flight)
        return ProducerClient(
            self._world_of(client_id),
            bootstrap=self._addresses,
            client_id=client_id,
            settings=settings,
            rules=client_parts_of(self.spec).idempotent_producer,
        )

    def reader(self, client_id: str, *, read_committed: bool = False) -> ReaderDriver:
        """Return a new reader: librdkafka for processes, our own for an embedded cluster."""
        if self.mode is Mode.PROCESSES:
            from kraftsim.cluster.librdkafka import LibrdkafkaReader

            return LibrdkafkaReader(self.spec.bootstrap, client_id, self._world_of(client_id), read_committed=read_committed)
        return OwnReader(self._world_of(client_id), bootstrap=self._addresses, client_id=client_id, read_committed=read_committed)

    def id_asker(self, client_id: str, *, broker: str | None = None) -> IdAsker:
        """Return a new asker, our own in every mode."""
        known = self._addresses if broker is None else [(self.spec.node(broker).host, self.spec.node(broker).port)]
        return InitProducerIdClient(self._world_of(client_id), bootstrap=known, client_id=client_id, retry_backoff_ms=20)

    def questions(self, client_id: str) -> TransactionQuestions:
        """Return a client of the harness that asks about transactions."""
        return TransactionQuestions(self._harness, self._addresses, client_id)

    def exact_client(self, client_id: str, topic: str) -> ExactClient:
        """Return a client of the harness that says exactly what it is told to say."""
        return ExactClient(self._harness, self._addresses, client_id, topic)

    def workplace(self, name: str) -> Workplace:
        """Return a new place for an application, whose clients are our own in both modes."""
        world = self._world_of(name)
        parts = client_parts_of(self.spec)
        return Workplace(name=name, world=world, bootstrap=self._addresses, frame_events=False, parts=parts, run_there=here)

    async def leave(self) -> None:
        """Have nothing more to do with the cluster."""
        await self._faults.close()

    def close(self) -> None:
        """Let the event logs of harness and clients go."""
        for world in self._worlds:
            world.close()
        self._worlds.clear()

    @property
    def _addresses(self) -> list[tuple[str, int]]:
        return [(node.host, node.port) for node in (self.spec.node(name) for name in self.spec.broker_names)]

    @property
    def _zookeeper_servers(self) -> list[tuple[str, int]]:
        return [(node.host, node.port) for node in (self.spec.node(name) for name in self.spec.zookeeper_names)]

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
