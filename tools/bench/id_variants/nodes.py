"""Runs nodes with different variants of producer-id allocation in virtual time, and clients that
request ids from the brokers.

Everything but the last digit follows from the seed alone: waits are in virtual time.
Source: KIP-730.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from enum import Enum
from statistics import quantiles

from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.metadata.events import MetadataAppended
from kraftsim.producer_ids.events import (
    InitProducerIdRefused,
    ProducerIdBlockAllocated,
    ProducerIdBlockReceived,
    ProducerIdReturned,
)
from kraftsim.producer_ids.rules_allocation import LAST_PRODUCER_ID
from kraftsim.server.broker import Broker
from kraftsim.server.outbound import PeerConnection
from kraftsim.world.simulated import FrameSeen, Simulation, collected_after
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "kraftsim.frame.events": "false",
}
ALLOCATE = 67
BACKOFF_SECONDS = 0.02
STALL_MS = 20.0
READY_SECONDS, LIMIT_SECONDS = 60.0, 600.0
WATCHED = (
    ProducerIdReturned,
    InitProducerIdRefused,
    ProducerIdBlockAllocated,
    ProducerIdBlockReceived,
    MetadataAppended,
)
SECONDS_PER_YEAR = 365.25 * 86_400


class Trouble(Enum):
    """The fault or load during a run."""

    NONE = "nothing"
    FORWARDED = "20 admin clients change configurations through the broker"
    CONTROLLER_AWAY = "the controller is killed, and back after 1 s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A variant of producer-id allocation.

    `brokers`: settings of single brokers; `zookeeper`: without KRaft controllers.
    """

    name: str
    release: str = "3.9"
    settings: Mapping[str, str] = field(default_factory=dict)
    brokers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    zookeeper: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParameters:
    """Load and faults of a run.

    `think_ms`: between two requests of a client; `crash_every_s`: of each broker; `lost`: every
    n-th response.
    """

    seconds: float = 4.0
    clients: int = 8
    think_ms: float = 5.0
    trouble: Trouble = Trouble.NONE
    crash_every_s: float = 0.0
    crashes_cleanly: bool = False
    lost: int = 0
    looper: str = ""
    """The broker as which a misbehaving caller requests blocks from the controller, as fast as it
    can; clients use broker 1.
    """
    asks_all: bool = False
    """Whether clients use all brokers in turn; else broker 1."""


@dataclass(slots=True)
class RunCounts:
    """The results of a run."""

    waits_ms: list[float] = field(default_factory=list)
    first_ms: float = 0.0
    """The wait of the first client."""
    refused: int = 0
    ids: int = 0
    doubled: int = 0
    blocks: dict[str, int] = field(default_factory=dict)
    """Blocks by source: the quorum, the ZooKeeper-mode controller, or the broker itself."""
    taken: int = 0
    """The number of ids in the allocated blocks."""
    crashes: int = 0
    lost: int = 0
    records: int = 0
    seconds: float = 0.0

    @property
    def stalls(self) -> int:
        """The number of clients that waited longer than a controller commit takes without
        faults.
        """
        return sum(each > STALL_MS for each in self.waits_ms)

    def share_ms(self, percent: int) -> float:
        """Return a percentile of the waits."""
        return quantiles(self.waits_ms, n=100)[percent - 1] if len(self.waits_ms) > 1 else 0.0

    @property
    def years_left(self) -> float:
        """How long 2^63 ids last at this rate."""
        return (
            LAST_PRODUCER_ID / (self.taken / self.seconds) / SECONDS_PER_YEAR
            if self.taken
            else float("inf")
        )


def simulate(way: Way, what: RunParameters, seed: int) -> RunCounts:
    """Run a cluster with clients, and return the results."""
    with collected_after(), Simulation(seed) as simulation:
        return Run(way, what, simulation, seed).counts


class Run:
    """One run; `counts` has its results."""

    def __init__(self, way: Way, what: RunParameters, simulation: Simulation, seed: int) -> None:
        self.counts = RunCounts(seconds=what.seconds)
        self._what, self._simulation, self._seen = what, simulation, set[int]()
        self._random = simulation.world_of(simulation.harness).random("mishaps")
        simulation.observe(self._observe, WATCHED)
        spec = ClusterSpec(
            controllers=0 if way.zookeeper else 1,
            zookeeper=way.zookeeper,
            release=way.release,
            seed=seed,
            settings={**SETTINGS, **way.settings},
            node_settings=way.brokers,
        )
        self._cluster = SimulatedCluster(spec, simulation)
        self._cluster.start()
        simulation.run_until(self._cluster.wait_until_ready(), READY_SECONDS)
        self._is_over = False
        if what.lost:
            simulation.triggers.follow_frames(self._lose)
        self._go()

    def _go(self) -> None:
        what, simulation = self._what, self._simulation
        tasks = [
            self._begin(f"client-{number}", self._ask(number)) for number in range(what.clients)
        ]
        if what.trouble is Trouble.FORWARDED:
            tasks += [self._begin(f"admin-{number}", self._administer()) for number in range(20)]
        if what.looper:
            tasks.append(self._begin("looper", self._loop(what.looper)))
        begun, steps = simulation.now_ns, int(what.seconds * 10)
        for step in range(steps):
            simulation.run_for(max((begun + step * 100_000_000 - simulation.now_ns) / 1e9, 0))
            self._inject(step)
        simulation.run_for(0.1)
        self._is_over = True
        for name, host in self._cluster.hosts.items():
            if not host.is_alive and name not in self._cluster.spec.zookeeper_names:
                simulation.restart(host)
        simulation.run_until(lambda: all(task.done() for task in tasks), LIMIT_SECONDS)

    def _inject(self, step: int) -> None:
        what, spec = self._what, self._cluster.spec
        if what.trouble is Trouble.CONTROLLER_AWAY and step in (4, 14):
            host = self._cluster.hosts[spec.controller_names[0]]
            self._simulation.kill(host) if host.is_alive else self._simulation.restart(host)
        for name in spec.broker_names if what.crash_every_s else ():
            host = self._cluster.hosts[name]
            if not host.is_alive:
                self._simulation.restart(host)
            elif self._random.random() < 0.1 / what.crash_every_s:
                self.counts.crashes += 1
                if not what.crashes_cleanly or self._simulation.stop(host) is None:
                    self._simulation.kill(host)

    def _begin(self, name: str, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        return self._simulation.spawn(self._simulation.add_host(name), work)

    async def _ask(self, number: int) -> None:
        turn = number
        while not self._is_over:
            begun = self._simulation.now_ns
            while not await self._try(turn) and not self._is_over:
                turn += 1
                await asyncio.sleep(BACKOFF_SECONDS)
            turn += 1
            waited = (self._simulation.now_ns - begun) / 1e6
            self.counts.first_ms = self.counts.first_ms or waited
            self.counts.waits_ms.append(waited)
            await asyncio.sleep(self._what.think_ms / 1000)

    async def _try(self, turn: int) -> bool:
        addresses = self._cluster.addresses
        host, port = addresses[turn % len(addresses) if self._what.asks_all else 0]
        connection = PeerConnection(host, port, client_id="asker")
        try:
            await connection.connect(timeout_ms=1000)
            answer = await connection.request(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            )
        except OSError:
            return False
        finally:
            connection.close()
        return bool(answer.error_code == ErrorCode.NONE)

    async def _administer(self) -> None:
        row = AlterableConfig(name="log.retention.ms", config_operation=0, value="-1")
        request = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=4, resource_name="", configs=[row])]
        )
        connection = PeerConnection(*self._cluster.addresses[0], client_id="admin")
        await connection.connect()
        while not self._is_over:
            await connection.request(request)
        connection.close()

    async def _loop(self, name: str) -> None:
        controller = self._cluster.spec.node(
            self._cluster.spec.controller_names[0], host_is_name=True
        )
        connection = PeerConnection(controller.host, controller.port, client_id="looper")
        await connection.connect()
        broker = self._cluster.nodes[name]
        assert isinstance(broker, Broker), "brokers are called so"
        while not self._is_over:
            await connection.request(
                AllocateProducerIdsRequest(
                    broker_id=broker.config.node_id, broker_epoch=broker.broker_epoch
                )
            )
        connection.close()

    def _lose(self, frame: FrameSeen, moment: str) -> None:
        if (
            frame.api_key == ALLOCATE
            and frame.is_response
            and moment == "before"
            and self._random.randrange(100) < self._what.lost
        ):
            self.counts.lost += 1
            frame.cut(0)

    def _observe(self, node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
        counts = self.counts
        match event:
            case ProducerIdReturned():
                counts.ids += 1
                counts.doubled += event.producer_id in self._seen
                self._seen.add(event.producer_id)
            case InitProducerIdRefused():
                counts.refused += 1
            case ProducerIdBlockAllocated():
                counts.blocks[event.given_by] = counts.blocks.get(event.given_by, 0) + 1
                counts.taken += event.next_producer_id - event.first_producer_id
            case MetadataAppended():
                counts.records += "ProducerIdsRecord" in event.record_kinds
            case _:
                return
