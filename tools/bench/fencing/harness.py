"""A cluster in virtual time, a topic of a few records, and members that copy it; the events record
what each member did, and when.

Source: KIP-447 and its design document.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from types import TracebackType
from typing import TypeVar

from kraftsim.clients.events import RecordRead
from kraftsim.clients.producer import ProducerClient
from kraftsim.clients.reader import ReaderClient
from kraftsim.clients.rules_member_steps import MemberSettings
from kraftsim.clients.rules_producer_steps import ProducerSettings
from kraftsim.clients.rules_transaction_steps import TransactionalSettings
from kraftsim.clients.rules_transactional_producer import TransactionalProducer
from kraftsim.cluster.administration import create_topic
from kraftsim.cluster.scenario import ClientHost
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.lab.workloads.transform_app import (
    Crashed,
    Mishaps,
    Point,
    TransformSettings,
    TransformWorker,
    Variant,
)
from kraftsim.releases.release import release
from kraftsim.server.parts import Parts
from kraftsim.world.simulated import Host, Simulation

T = TypeVar("T")
E = TypeVar("E", bound=Event)
INPUT, OUTPUT, GROUP = "in", "out", "copiers"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
PATIENT = ProducerSettings(linger_ms=0, delivery_timeout_ms=200_000, request_timeout_ms=100_000)
LIMIT_S = 600.0
RECORDS = 20
"""The number of input records."""
NS_PER_MS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberParameters:
    """The parameters of members. `rules`: of their producers."""

    variant: Variant = Variant.PER_THREAD
    assignor: str = "range"
    session_ms: int = 6000
    transaction_ms: int = 10_000
    is_old: bool = False
    rules: type[TransactionalProducer] = TransactionalProducer
    downgrades: bool = True
    latest_version: int | None = None


class Member:
    """A member on its own host. It crashes at `dies_at`, and is not restarted."""

    def __init__(self, harness: "FencingHarness", name: str, terms: MemberParameters) -> None:
        self.name = name
        self.host = harness.simulation.add_host(name)
        self.is_done = False
        self.dies_at: Point | None = None
        self.died_ms: float | None = None
        self._lab = harness
        self.transform_worker = TransformWorker(
            harness.client_host(self.host, terms),
            harness.settings(terms),
            mishaps=Mishaps(random=harness.random(name)),
            is_done=lambda: self.is_done,
        )
        self.transform_worker.on_point = self._look
        self.task = harness.simulation.spawn(self.host, self.transform_worker.live())

    def close(self) -> None:
        """Leave the group after the current transaction."""
        self.is_done, self.died_ms = True, self._lab.now_ms

    def _look(self, point: Point, transform_worker: TransformWorker) -> None:
        if self.dies_at is point:
            self.is_done, self.died_ms = True, self._lab.now_ms
            raise Crashed(point)


class FencingHarness:
    """A context manager: within it the cluster is up, and the input records are written."""

    def __init__(
        self,
        *,
        records: int = RECORDS,
        partitions: int = 1,
        seed: int = 1,
        release_name: str = "3.9",
        zookeeper: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.simulation = Simulation(seed)
        self._events: list[tuple[float, Event]] = []
        self._records, self._partitions = records, partitions
        merged = {**SETTINGS, **(settings or {})}
        self._spec = ClusterSpec(
            controllers=0 if zookeeper else 1,
            brokers=1,
            seed=seed,
            release=release_name,
            zookeeper=zookeeper,
            settings=merged,
        )

    def __enter__(self) -> "FencingHarness":
        self.simulation.__enter__()
        self.simulation.observe(
            lambda node, incarnation, n, t_ns, event: self._events.append((t_ns / NS_PER_MS, event))
        )
        self.cluster = SimulatedCluster(self._spec, self.simulation)
        self.client = self.simulation.add_host("client")
        self.cluster.start()
        self.simulation.run_until(self.cluster.wait_until_ready(), limit_s=60)
        self.run(self._prepare())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.simulation.__exit__(kind, error, trace)

    # Queries
    # ----------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        """Virtual milliseconds since the start."""
        return self.simulation.now_ns / NS_PER_MS

    def of(self, kind: type[E], *, since_ms: float = 0.0) -> Iterator[tuple[float, E]]:
        """Yield the events of a kind, with the time of each."""
        return (
            (t_ms, event)
            for t_ms, event in self._events
            if isinstance(event, kind) and t_ms >= since_ms
        )

    def first_read_ms(self, name: str, since_ms: float) -> float | None:
        """Return when a member read its first record after a time; None if it has not."""
        return next(
            (
                t_ms
                for t_ms, event in self.of(RecordRead, since_ms=since_ms)
                if event.client_id.startswith(name)
            ),
            None,
        )

    def copies(self) -> Counter[str]:
        """Return how often read_committed consumers read each output record."""
        return Counter(self.run(self._read()))

    def doubled(self) -> int:
        """Return the number of duplicated output records."""
        return sum(count > 1 for count in self.copies().values())

    # Actions
    # ----------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[object, object, T], limit_s: float = LIMIT_S) -> T:
        """Run work on the client's host."""
        found = self.simulation.run_until(self.simulation.spawn(self.client, work), limit_s)
        return found

    def wait(self, seconds: float) -> None:
        """Advance virtual time."""
        self.simulation.run_for(seconds)

    def until(self, is_so: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Advance virtual time until a condition holds."""
        self.simulation.run_until(is_so, limit_s)

    def random(self, name: str) -> Random:
        """Return a stream of random numbers."""
        return self.simulation.world_of(self.client).random(name)

    def client_host(self, host: Host, terms: MemberParameters) -> ClientHost:
        """Return the client host of a member."""

        async def there(work: Coroutine[object, object, T]) -> T:
            return await self.simulation.spawn(host, work)

        parts = Parts.for_release(release(self._spec.release)).replacing(
            transactional_producer=terms.rules
        )
        world = self.simulation.world_of(host)
        return ClientHost(
            name=host.name,
            world=world,
            bootstrap=self.cluster.addresses,
            frame_events=False,
            parts=parts,
            run_there=there,
        )

    def group(self, terms: MemberParameters) -> MemberSettings:
        """Return the settings of a consumer."""
        return MemberSettings(
            group_id=GROUP,
            topics=(INPUT,),
            assignor=terms.assignor,
            session_timeout_ms=terms.session_ms,
            heartbeat_interval_ms=terms.session_ms // 4,
            rebalance_timeout_ms=terms.session_ms,
            latest_version=terms.latest_version,
        )

    def settings(self, terms: MemberParameters) -> TransformSettings:
        """Return the settings of a member."""
        return TransformSettings(
            input_topic=INPUT,
            output_topic=OUTPUT,
            group=self.group(terms),
            variant=terms.variant,
            transaction_timeout_ms=terms.transaction_ms,
            names_member=not terms.is_old,
            require_stable=not terms.is_old,
            producer=TransactionalSettings(
                transactional_id="", producer=replace(PATIENT), downgrades_commits=terms.downgrades
            ),
        )

    async def write(self, first: int, end: int) -> None:
        """Write records of the input."""
        client = ProducerClient(
            self.simulation.world_of(self.client),
            bootstrap=self.cluster.addresses,
            client_id=f"writer-{first}",
        )
        await client.start()
        for number in range(first, end):
            await client.send(INPUT, number % self._partitions, str(number), b"line")
        await client.flush(60)
        await client.close()

    async def _prepare(self) -> None:
        for topic in (INPUT, OUTPUT):
            await create_topic(self.cluster.addresses, topic, self._partitions, 1)
        await self.write(0, self._records)

    async def _read(self) -> list[str]:
        world = self.simulation.world_of(self.client)
        reader = ReaderClient(
            world,
            bootstrap=self.cluster.addresses,
            client_id=f"auditor-{self.simulation.now_ns}",
            read_committed=True,
        )
        found = await reader.read_all(OUTPUT, range(self._partitions))
        await reader.close()
        return [record.key for record in found]
