"""A cluster in virtual time, a topic of a few records, and members that copy it; what each of them did, and when, is in the events.

Source: KIP-447 and the document of its design.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TypeVar

from kraftsim.cluster.copier import Copier, CopierSettings, Crashed, Mishaps, Point, Variant
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.cluster.topics import create_topic
from kraftsim.cluster.workplace import Workplace
from kraftsim.core.clients.membership_steps import GroupSettings
from kraftsim.core.clients.producer_steps import ProducerSettings
from kraftsim.core.clients.transaction_steps import TransactionalSettings
from kraftsim.core.clients.transactional_producer import TransactionalProducer
from kraftsim.events.clients import RecordRead
from kraftsim.events.event import Event
from kraftsim.node.clients import ProducerClient, ReaderClient
from kraftsim.node.parts import Parts
from kraftsim.releases.catalogue import release
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
"""How many there are to copy."""
NS_PER_MS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What members are told. `rules`: of their producers."""

    variant: Variant = Variant.PER_THREAD
    assignor: str = "range"
    session_ms: int = 6000
    transaction_ms: int = 10_000
    is_old: bool = False
    rules: type[TransactionalProducer] = TransactionalProducer
    downgrades: bool = True
    latest_version: int | None = None


class Member:
    """A member on a host of its own. It dies where `dies_at` says, and is not started again."""

    def __init__(self, lab: "FencingLab", name: str, terms: Terms) -> None:
        self.name = name
        self.host = lab.simulation.add_host(name)
        self.is_done = False
        self.dies_at: Point | None = None
        self.died_ms: float | None = None
        self._lab = lab
        self.copier = Copier(
            lab.workplace(self.host, terms), lab.settings(terms), mishaps=Mishaps(random=lab.random(name)), is_done=lambda: self.is_done
        )
        self.copier.on_point = self._look
        self.task = lab.simulation.spawn(self.host, self.copier.live())

    def close(self) -> None:
        """End in good order, when the present transaction is over."""
        self.is_done, self.died_ms = True, self._lab.now_ms

    def _look(self, point: Point, copier: Copier) -> None:
        if self.dies_at is point:
            self.is_done, self.died_ms = True, self._lab.now_ms
            raise Crashed(point)


class FencingLab:
    """`with` it: the cluster is up, and the records are written."""

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
        self._noted: list[tuple[float, Event]] = []
        self._records, self._partitions = records, partitions
        told = {**SETTINGS, **(settings or {})}
        self._spec = ClusterSpec(controllers=0 if zookeeper else 1, brokers=1, seed=seed, release=release_name, zookeeper=zookeeper, settings=told)

    def __enter__(self) -> "FencingLab":
        self.simulation.__enter__()
        self.simulation.observe(lambda node, incarnation, n, t_ns, event: self._noted.append((t_ns / NS_PER_MS, event)))
        self.cluster = SimulatedCluster(self._spec, self.simulation)
        self.client = self.simulation.add_host("client")
        self.cluster.start()
        self.simulation.run_until(self.cluster.wait_until_ready(), limit_s=60)
        self.run(self._prepare())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.simulation.__exit__(kind, error, trace)

    # Looking ----------------------------------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        """Virtual milliseconds since the beginning."""
        return self.simulation.now_ns / NS_PER_MS

    def of(self, kind: type[E], *, since_ms: float = 0.0) -> Iterator[tuple[float, E]]:
        """Yield the facts of a kind, with the moment of each."""
        return ((t_ms, event) for t_ms, event in self._noted if isinstance(event, kind) and t_ms >= since_ms)

    def first_read_ms(self, name: str, since_ms: float) -> float | None:
        """Return when a member read its first record after a moment; None if it has not."""
        return next((t_ms for t_ms, event in self.of(RecordRead, since_ms=since_ms) if event.client_id.startswith(name)), None)

    def copies(self) -> Counter[str]:
        """Return how often each record is in the copy, as readers of committed records see it."""
        return Counter(self.run(self._read()))

    def doubled(self) -> int:
        """Return how many records are in the copy more than once."""
        return sum(count > 1 for count in self.copies().values())

    # Doing ------------------------------------------------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[object, object, T], limit_s: float = LIMIT_S) -> T:
        """Carry out work on the client's host."""
        found = self.simulation.run_until(self.simulation.spawn(self.client, work), limit_s)
        return found  # type: ignore[return-value]

    def wait(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.simulation.run_for(seconds)

    def until(self, is_so: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Let virtual time pass until something is so."""
        self.simulation.run_until(is_so, limit_s)

    def random(self, name: str):  # type: ignore[no-untyped-def]
        """Return a stream of random numbers."""
        return self.simulation.world_of(self.client).random(name)

    def workplace(self, host: Host, terms: Terms) -> Workplace:
        """Return where a member works."""

        async def there(work: Coroutine[object, object, T]) -> T:
            return await self.simulation.spawn(host, work)

        parts = Parts.for_release(release(self._spec.release)).replacing(transactional_producer=terms.rules)
        world = self.simulation.world_of(host)
        return Workplace(name=host.name, world=world, bootstrap=self.cluster.addresses, frame_events=False, parts=parts, run_there=there)

    def group(self, terms: Terms) -> GroupSettings:
        """Return what a consumer is told."""
        return GroupSettings(
            group_id=GROUP,
            topics=(INPUT,),
            assignor=terms.assignor,
            session_timeout_ms=terms.session_ms,
            heartbeat_interval_ms=terms.session_ms // 4,
            rebalance_timeout_ms=terms.session_ms,
            latest_version=terms.latest_version,
        )

    def settings(self, terms: Terms) -> CopierSettings:
        """Return what a member is told."""
        return CopierSettings(
            input_topic=INPUT,
            output_topic=OUTPUT,
            group=self.group(terms),
            variant=terms.variant,
            transaction_timeout_ms=terms.transaction_ms,
            names_member=not terms.is_old,
            require_stable=not terms.is_old,
            producer=TransactionalSettings(transactional_id="", producer=replace(PATIENT), downgrades_commits=terms.downgrades),
        )

    async def write(self, first: int, end: int) -> None:
        """Write records of the input."""
        client = ProducerClient(self.simulation.world_of(self.client), bootstrap=self.cluster.addresses, client_id=f"writer-{first}")
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
        reader = ReaderClient(world, bootstrap=self.cluster.addresses, client_id=f"auditor-{self.simulation.now_ns}", read_committed=True)
        found = await reader.read_all(OUTPUT, range(self._partitions))
        await reader.close()
        return [record.key for record in found]
