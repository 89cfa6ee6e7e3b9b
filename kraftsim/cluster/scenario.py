"""A scenario: written once, and run in simulation, in separate processes, or embedded.

The differences between the modes are listed here and nowhere else:

| method         | sim                        | processes                | embedded               |
|----------------|----------------------------|--------------------------|------------------------|
| kill           | node vanishes (1)          | SIGKILL                  | node aborted (2)       |
| power_loss     | node vanishes silently (3) | not possible: a kill     | not possible: a kill   |
| restart        | next incarnation (4)       | next process (4)         | next node object (4)   |
| pause          | callbacks wait             | SIGSTOP and SIGCONT      | not possible: left out |
| faults (5)     | in the simulated network   | in a proxy of every node | in the same proxy      |
| faults (6)     | yes                        | left out, and counted    | left out, and counted  |
| triggers (7)   | all                        | times and frames         | times and frames       |
| sleep          | virtual time               | real time                | real time              |
| clients        | kraftsim's own             | librdkafka (8)           | kraftsim's own         |

1. Peers see RST, and the disk cache stays.
2. Without a flush and without a clean marker.
3. Its unflushed writes are lost, by seed.
4. On the same disk or directory.
5. Of the network and of requests.
6. Of disks and clocks. The modes without them count them as left out.
7. Times, disks, frames, events and states.
8. Ids and transactions by kraftsim's own clients.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, SupportsIndex, TypeVar

from kraftsim import former_names
from kraftsim.catalogue import Catalogue, sibling
from kraftsim.clients.group_consumer import GroupConsumerClient
from kraftsim.clients.reader import ReadRecord
from kraftsim.clients.rules_member_steps import MemberSettings
from kraftsim.clients.rules_producer_steps import ProducerSettings as ProducerSettings
from kraftsim.clients.rules_transaction_steps import TransactionalSettings
from kraftsim.clients.transactional_producer import TransactionalClient
from kraftsim.clients.two_phase_producer import TwoPhaseClient
from kraftsim.cluster.administration import TransactionQueries
from kraftsim.cluster.exact_client import ExactClient
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.extensions import ExtensionError, exporting, is_path, load_file, shown
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.fault_space import FaultSpace
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.releases.release import is_before, release, releases
from kraftsim.server.parts import Parts
from kraftsim.world.interface import World
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the scenario environment)

    from kraftsim.clients.share_consumer import ShareConsumerClient, ShareConsumerSettings


# --------------------------------------------------------------------------------------------------
# The host of an application of a scenario: a simulated host in simulation, this process elsewhere
#
# Its clients are kraftsim's own in every mode.
#
# What an application does between its requests runs on that host, too: see `run`.

T = TypeVar("T")


class Runner(Protocol):
    """Runs a coroutine on a host."""

    def __call__(self, work: Coroutine[object, object, T]) -> Awaitable[T]:
        """Run it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientHost:
    """One host with an application on it."""

    name: str
    world: World
    bootstrap: Sequence[tuple[str, int]]
    frame_events: bool
    parts: Parts
    run_there: Runner

    def run(self, work: Coroutine[object, object, T]) -> Awaitable[T]:
        """Run a coroutine on this host."""
        return self.run_there(work)

    def emit(self, event: Event) -> None:
        """Emit an event to the log of this host."""
        self.world.emit(event)

    def transactional_producer(
        self, client_id: str, settings: TransactionalSettings, *, names_member: bool = True
    ) -> TransactionalClient:
        """Return a new producer.

        `names_member` False: offsets are committed as by pre-KIP-447 clients.
        """
        return TransactionalClient(
            self.world,
            bootstrap=self.bootstrap,
            client_id=client_id,
            settings=settings,
            frame_events=self.frame_events,
            names_member=names_member,
            rules=self.parts.transactional_producer,
        )

    def two_phase_producer(self, client_id: str, settings: TransactionalSettings) -> TwoPhaseClient:
        """Return a new producer that participates in a two-phase commit."""
        return TwoPhaseClient(
            self.world,
            bootstrap=self.bootstrap,
            client_id=client_id,
            settings=settings,
            frame_events=self.frame_events,
            rules=self.parts.transactional_producer,
        )

    def group_consumer(
        self, client_id: str, settings: MemberSettings, *, require_stable: bool = True
    ) -> GroupConsumerClient:
        """Return a new consumer.

        `require_stable` False: it fetches offsets as pre-KIP-447 clients do.
        """
        return GroupConsumerClient(
            self.world,
            bootstrap=self.bootstrap,
            client_id=client_id,
            settings=settings,
            frame_events=self.frame_events,
            require_stable=require_stable,
        )

    def share_consumer(
        self, client_id: str, settings: MemberSettings, share: "ShareConsumerSettings"
    ) -> "ShareConsumerClient":
        """Return a new member of a share group."""
        from kraftsim.clients.share_consumer import ShareConsumerClient

        return ShareConsumerClient(
            self.world,
            bootstrap=self.bootstrap,
            client_id=client_id,
            settings=settings,
            share=share,
            frame_events=self.frame_events,
        )


async def here(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine in this process."""
    return await work


# --------------------------------------------------------------------------------------------------
# The interface of workload clients, whichever library implements it
#
# | mode | producers and readers | producer-id clients |
# |-----------|--------------------------------|---------------------| | sim | our own, in virtual
# time | our own | | embedded | our own, over sockets | our own | | processes | librdkafka
# (confluent-kafka) | our own |
#
# Each emits its requests and their results as events of `kraftsim.clients.events`, to a log of its
# own.


class ProducerDriver(Protocol):
    """An idempotent producer with acks=all."""

    async def start(self) -> None:
        """Connect and obtain a producer id, retrying without a limit."""
        ...

    async def send(self, topic: str, partition: int, key: str, value: bytes) -> None:
        """Enqueue a record; returns when the buffer has room for more, not when the record is
        acknowledged.
        """
        ...

    async def flush(self, timeout_seconds: float) -> int:
        """Wait until every record is acknowledged or failed; return how many are still in
        flight.
        """
        ...

    async def close(self) -> None:
        """End the client."""
        ...


class ReaderDriver(Protocol):
    """A consumer with assigned partitions, without a group."""

    async def read_all(self, topic: str, partitions: Sequence[int]) -> list[ReadRecord]:
        """Return every record from the start of each partition to its end at the time of the
        call.
        """
        ...

    async def close(self) -> None:
        """End the client."""
        ...


class ProducerIdClient(Protocol):
    """Requests producer ids, one after the other, and discards them."""

    async def ask(self, count: int) -> list[int]:
        """Return `count` fresh producer ids; retries retriable errors."""
        ...

    async def ask_once(self) -> ErrorCode:
        """Send requests until there is an answer, and return its error, or NONE."""
        ...

    async def close(self) -> None:
        """End the client."""
        ...


class Mode(StrEnum):
    """How the nodes of a scenario run."""

    SIM = "sim"
    PROCESSES = "processes"
    EMBEDDED = "embedded"


class ScenarioFailed(RuntimeError):
    """The run did not have the expected outcome; the message says what was observed instead."""


class LivenessLost(ScenarioFailed):
    """After all faults were healed, something did not settle within its bound."""


class ScenarioEnvironment(Protocol):
    """The environment that a scenario runs in: a cluster, time, clients, and faults."""

    mode: Mode
    seed: int
    spec: ClusterSpec
    patience: float
    """A factor for the bounds within which a cluster must recover: 1, and more for nodes in JVMs,
    which take longer to start.
    """

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults of this run, whether they are armed already or not."""
        ...

    def random(self, purpose: str) -> "Random":
        """Return the stream of random numbers for a purpose, keyed by the seed."""
        ...

    def emit(self, event: Event) -> None:
        """Emit an event to the harness's log."""
        ...

    def workload(self, parameter: str) -> int:
        """Return the value of a workload parameter in this run.

        Raises KeyError for one that the scenario does not declare.
        """
        ...

    def now_seconds(self) -> float:
        """Return seconds since the run began, in this mode's time."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    async def gather(self, *work: Awaitable[object]) -> None:
        """Run coroutines concurrently; the first failure cancels the rest and is raised."""
        ...

    def inject(self) -> None:
        """Arm the faults that were drawn for this run; times count from now."""
        ...

    async def heal(self) -> None:
        """End every fault, and restart nodes that are down because of one."""
        ...

    async def restart(
        self, name: str, *, release: str | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Stop a node cleanly (it is killed if that takes too long) and start it again; return when
        it is started, not yet when it is ready.

        From now on it starts with the release and the settings given here, if any.
        """
        ...

    async def kill(self, name: str) -> None:
        """Kill a node; only `restart` starts it again, not the end of a fault."""
        ...

    async def voters(self) -> tuple[str, ...] | None:
        """Return the voters of the quorum, as the leader reports them now; None if no node reports
        that it leads.
        """
        ...

    async def change_voter(self, name: str, *, joins: bool) -> bool:
        """Ask the leader once to add or remove a controller as voter, as `kafka-metadata-quorum`
        does; return whether the change is committed.

        For a scenario with `first_voters`. Without an answer in time the change may or may not be
        committed later.
        """
        ...

    def is_down(self, name: str) -> bool:
        """Return whether a node does not run: it was killed, or has failed."""
        ...

    async def update_features(
        self, levels: Mapping[str, int], *, downwards: bool = False
    ) -> Mapping[str, str]:
        """Update feature levels, as `kafka-features` does, until there is an answer; return the
        errors of those that could not change, by name.
        """
        ...

    async def wait_for_leader(self) -> None:
        """Return when a controller is active, as far as this mode can observe that."""
        ...

    async def wait_for_brokers(self) -> None:
        """Return when every broker answers and sees every other one as alive."""
        ...

    async def wait_for_controllers(self) -> None:
        """Return when every controller has applied all that is committed now, as far as this mode
        can observe that.
        """
        ...

    async def wait_for_dual_write(self) -> None:
        """Return when the KRaft controllers have migrated the metadata and write changes to
        ZooKeeper, too (dual write).
        """
        ...

    async def zookeeper_metadata(self) -> MetadataImage:
        """Return the metadata in ZooKeeper, as soon as it answers."""
        ...

    async def compare_with_zookeeper(self, before: MetadataImage | None = None) -> None:
        """Wait until ZooKeeper agrees with the metadata log, and emit the differences; also those
        from the metadata `before` the migration, if that is given.
        """
        ...

    async def give_up_migration(self) -> None:
        """Stop the KRaft controllers for good, and delete their controller and migration znodes: a
        broker can become controller again.
        """
        ...

    async def format_new_quorum(self, metadata_log: int) -> None:
        """Start the KRaft controllers, which were stopped for good, with empty data directories: a
        new quorum of the same cluster, with a metadata log of its own, the nth of the cluster.
        """
        ...

    async def create_topic(self, topic: str, partitions: int, replicas: int = 1) -> None:
        """Create a topic and return when every broker reports a leader for each partition, with all
        replicas in sync.
        """
        ...

    async def wait_for_replicas(self, topic: str, partitions: int) -> None:
        """Return when every broker reports all replicas of each partition as in sync; emit them as
        events.
        """
        ...

    async def elect_preferred_leaders(self) -> bool:
        """Send a preferred leader election for all partitions to any broker, once; return whether
        there was an answer.
        """
        ...

    def producer(self, client_id: str, settings: ProducerSettings | None = None) -> ProducerDriver:
        """Return a new producer on a host of its own. librdkafka uses only the number of in-flight
        requests of the settings.
        """
        ...

    def reader(self, client_id: str, *, read_committed: bool = False) -> ReaderDriver:
        """Return a new reader on a host of its own."""
        ...

    def questions(self, client_id: str) -> TransactionQueries:
        """Return a client of the harness that queries last stable offsets of partitions, and
        committed offsets of a group.
        """
        ...

    def exact_client(self, client_id: str, topic: str) -> ExactClient:
        """Return a client of the harness that sends exact requests about one topic."""
        ...

    def client_host(self, name: str) -> ClientHost:
        """Return a host for an application that consumes, transforms and produces; its clients are
        kraftsim's own in every mode.
        """
        ...

    def producer_id_client(self, client_id: str, *, broker: str | None = None) -> ProducerIdClient:
        """Return a new client that requests producer ids from one broker after the other, or from
        the one that is named.
        """
        ...


async def within(
    stage: ScenarioEnvironment, what: str, wait: Awaitable[object], seconds: float
) -> None:
    """Wait for something.

    Raises LivenessLost if that takes longer than so many seconds of the environment's clock, times
    its patience.
    """
    seconds *= stage.patience
    try:
        async with asyncio.timeout(seconds):
            await wait
    except TimeoutError as late:
        raise LivenessLost(
            f"{what}: not reached within {seconds:g} s, at {stage.now_seconds():.1f} s"
        ) from late


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One scenario.

    `faults` draws a schedule from a seed before anything runs; `run` runs the rest in an
    environment.
    """

    name: str
    summary: str
    must_exercise: tuple[str, ...]
    run: Callable[[ScenarioEnvironment], Awaitable[None]]
    faults: Callable[["Random", Mode], tuple[Fault, ...]]
    controllers: int = 1
    controllers_drawn: tuple[int, ...] = ()
    """In simulation, other numbers of controllers that a run may have: its seed chooses one of
    these.
    """
    first_voters: int = 0
    """0: a static quorum (controller.quorum.voters).

    Else so many controllers format a dynamic quorum; the others may be added as voters.
    """
    brokers: int = 3
    combined: int = 0
    """How many of the brokers are controllers as well, in one process; a run with fewer nodes has
    as many as it can.
    """
    zookeeper_mode: bool = False
    """Whether the brokers keep their metadata in ZooKeeper, a server of kraftsim's.

    `controllers` are those of a migration: there may be none.
    """
    settings: Mapping[str, str] = field(default_factory=dict)
    node_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of single nodes, by name, on top of `settings`."""
    draw_parameters: Callable[["Random"], Mapping[str, str]] | None = None
    """Draws settings of one run from its seed, on top of `settings`: a value that is the same in
    every run hides bugs that another one shows.
    """
    has_own_faults: bool = True
    """Whether `faults` draws any; without them every run has random faults."""
    fault_space: FaultSpace | None = None
    """The fault space of random faults, in addition to those that `faults` draws; None: no random
    faults.
    """
    provoked_errors: tuple[int, ...] = ()
    """Error codes that no retry heals and that clients of this scenario provoke themselves, apart
    from those of fenced producers and of members that lose their group: see the invariant
    only-retriable-errors.
    """
    limit_seconds: float = 600.0
    workload: Mapping[str, int] = field(default_factory=dict)
    """Workload parameters and their defaults, for `stage.workload(parameter)`. A run may reduce
    each of them, down to 0: then there is less to read in a finding. `work_ms`, where there is one,
    is the duration of the fault phase.
    """
    fewest_controllers: int = 0
    fewest_brokers: int = 0
    """The smallest number of nodes that the scenario can run with; 0: no fewer than its default."""
    since: str = ""
    until: str = ""
    """The first and the last release of a new cluster that the scenario supports; "": no bound."""
    reference: str = ""
    """What `scenario` finds one from outside the project by, in another process, too: FILE.py,
    FILE.py::FUNCTION, or the name of one in an extension. Its runs are isolated
    (`kraftsim.lab.explore.isolated`).
    """
    workload_prefixes: tuple[str, ...] = ()
    """Workload parameters may also begin with one of these: the rest of their name is free."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> "str | tuple[object, ...]":
        """Pickle a scenario from outside by its reference: other processes load its file again."""
        if self.reference:
            return scenario, (self.reference,)
        return object.__reduce_ex__(self, protocol)

    def supports_release(self, line: str) -> bool:
        """Return whether the scenario supports clusters that begin with a release.

        Raises KeyError if there is no such release.
        """
        known = release(line)
        has_mode = known.has_zookeeper_mode if self.zookeeper_mode else known.has_kraft
        return (
            has_mode
            and not (self.since and is_before(line, self.since))
            and not (self.until and is_before(self.until, line))
        )

    def require_release(self, line: str) -> None:
        """Raise ValueError if the scenario does not support clusters that begin with a release,
        KeyError if there is no such release.
        """
        if not self.supports_release(line):
            supported = [known.name for known in releases() if self.supports_release(known.name)]
            raise ValueError(
                f"{self.name} does not support release {line}; choose one of {', '.join(supported)}"
            )

    @property
    def identifier(self) -> str:
        """What `scenario` finds it by: its name, or the reference of one from outside."""
        return self.reference or self.name

    @property
    def least_controllers(self) -> int:
        """How many controllers the scenario needs."""
        return min(
            self.fewest_controllers or self.controllers, self.controllers, *self.controllers_drawn
        )

    @property
    def least_brokers(self) -> int:
        """How many brokers the scenario needs."""
        return self.fewest_brokers or self.brokers

    def fits(self, controllers: int | None, brokers: int | None) -> bool:
        """Return whether the scenario can run with so many nodes; None: the default number."""
        return not self._misfit(controllers, brokers)

    def require_size(self, controllers: int | None, brokers: int | None) -> None:
        """Raise ValueError if the scenario cannot run with so many nodes; None: the default
        number.
        """
        why = self._misfit(controllers, brokers)
        if why:
            raise ValueError(why)

    def _misfit(self, controllers: int | None, brokers: int | None) -> str:
        if controllers and not self.controllers:
            return (
                f"{self.name} has no KRaft controllers: its brokers keep their metadata in "
                "ZooKeeper"
            )
        for role, least, requested in (
            ("controllers", self.least_controllers, controllers),
            ("brokers", self.least_brokers, brokers),
        ):
            if requested is not None and requested < least:
                return f"{self.name} needs {least} {role} or more, not {requested}"
        return ""


REFERENCE_SIGN = "::"
"""Between the file and the function in a reference."""

SCENARIOS: Catalogue[Scenario] = Catalogue(
    sibling("scenarios"), "SCENARIO", Scenario, former=former_names.SCENARIOS
)


def scenarios() -> tuple[Scenario, ...]:
    """Return every scenario, sorted by name."""
    return SCENARIOS.all()


APPLICATIONS = "kraftsim.lab.application.reference"
"""Turns FILE.py::FUNCTION into a scenario; imported on use, as the files of a catalogue are."""


def scenario(name: str) -> Scenario:
    """Return a scenario by its name ('-' and '_' are the same); or that of a file, by its path: the
    file exports it as SCENARIO; or an application or a simulation test, by FILE.py::FUNCTION.

    Raises KeyError with the known names, ExtensionError for a file that cannot be used, ValueError
    for a function that cannot be run.
    """
    if REFERENCE_SIGN in name:
        found = importlib.import_module(APPLICATIONS).scenario_of(name)
        assert isinstance(found, Scenario), "its return type"
        return found
    if is_path(name):
        return replace(_scenario_of(Path(name)), reference=name)
    found = SCENARIOS.named(name.replace("-", "_"))
    is_from_outside = any(
        each is found
        for extension in exporting("SCENARIO", installed=False)
        for each in SCENARIOS.of_extension(extension)
    )
    return replace(found, reference=found.name) if is_from_outside else found


def _scenario_of(file: Path) -> Scenario:
    module = load_file(file)
    SCENARIOS.all()  # reports a name that is taken
    extension = next(
        (each for each in exporting("SCENARIO", installed=False) if each.module is module), None
    )
    found = () if extension is None else SCENARIOS.of_extension(extension)
    if not found:
        raise ExtensionError(f"{shown(file)} exports no SCENARIO")
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise ExtensionError(
            f"{shown(file)} has several scenarios: name one of {names}, with --extension "
            f"{shown(file)}"
        )
    return found[0]
