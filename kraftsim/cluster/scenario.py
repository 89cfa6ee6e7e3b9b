"""A scenario: one story, told once, played in simulation, in separate processes, or embedded.

What differs between the modes is said here and nowhere else:

| verb of the stage | sim                                         | processes                    | embedded                                  |
|-------------------|---------------------------------------------|------------------------------|-------------------------------------------|
| kill              | node vanishes, peers see RST, disk cache stays | SIGKILL                   | node aborted: no flush, no clean marker |
| power_loss        | node vanishes silently, unflushed writes are lost by seed | not possible: played as a kill | not possible: played as a kill |
| restart           | next incarnation on the same disk           | next process on the same directory | next node object on the same directory |
| pause             | callbacks wait                              | SIGSTOP and SIGCONT          | not possible: left out                    |
| faults of the network and of requests | in the simulated network | in a proxy before every node | in the same proxy                         |
| faults of disks and clocks | yes                                | left out, and counted as such | left out, and counted as such            |
| triggers          | times, disks, frames, events, states        | times and frames             | times and frames                          |
| sleep             | virtual time                                | real time                    | real time                                 |
| clients           | our own                                     | librdkafka; ids and transactions by our own | our own                    |
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from kraftsim.catalogue import Catalogue
from kraftsim.cluster.exact_client import ExactClient
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.cluster.stable_ends import TransactionQuestions
from kraftsim.cluster.workload import IdAsker, ProducerDriver, ReaderDriver
from kraftsim.cluster.workplace import Workplace
from kraftsim.core.clients.producer_steps import ProducerSettings as ProducerSettings
from kraftsim.events.event import Event
from kraftsim.faults.fault import Fault
from kraftsim.faults.terrain import Terrain
from kraftsim.releases.catalogue import is_before, release, releases

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)


class Mode(StrEnum):
    """How the nodes of a scenario run."""

    SIM = "sim"
    PROCESSES = "processes"
    EMBEDDED = "embedded"


class StoryFailed(RuntimeError):
    """The story did not come true; the message says what was seen instead."""


class LivenessLost(StoryFailed):
    """After all faults were healed, something did not settle within its bound."""


class Stage(Protocol):
    """What a scenario plays on: a cluster, time, clients, and faults."""

    mode: Mode
    seed: int
    spec: ClusterSpec

    def random(self, purpose: str) -> "Random":
        """Return the stream of random numbers for a purpose, keyed by the seed."""
        ...

    def note(self, event: Event) -> None:
        """Add a fact to the harness's event log."""
        ...

    def workload(self, knob: str) -> int:
        """Return what a knob of the scenario's workload stands at in this run. Raises KeyError for one that the scenario does not declare."""
        ...

    def now_seconds(self) -> float:
        """Return seconds since the run began, in this mode's time."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    async def gather(self, *work: Awaitable[object]) -> None:
        """Run work side by side; the first failure cancels the rest and is raised."""
        ...

    def inject(self) -> None:
        """Arm the faults that were drawn for this run; times count from now."""
        ...

    async def mend(self) -> None:
        """End every fault, and start again what is down."""
        ...

    async def restart(self, name: str, *, release: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        """Stop a node in good order (it is killed if that takes too long) and start it again; return when it is started, not yet when it serves.

        From now on, whenever it starts, it is of another release or has other settings, where such are given.
        """
        ...

    async def kill(self, name: str) -> None:
        """End a node at once; `restart` starts it again."""
        ...

    async def voters(self) -> tuple[str, ...] | None:
        """Return which controllers vote, as whoever leads the quorum tells it now; None if nobody says that it leads."""
        ...

    async def change_voter(self, name: str, *, joins: bool) -> bool:
        """Ask whoever leads once that a controller become a voter, or be none any more, as `kafka-metadata-quorum` does; tell whether that is so.

        For a scenario with `first_voters`. Where nobody answers, or not in time, the change may or may not come to be.
        """
        ...

    def is_down(self, name: str) -> bool:
        """Tell whether a node does not run: it was killed, or gave up."""
        ...

    async def update_features(self, levels: Mapping[str, int], *, downwards: bool = False) -> Mapping[str, str]:
        """Ask for other levels of features, as `kafka-features` does, until there is an answer; return why some could not change, by name."""
        ...

    async def wait_for_leader(self) -> None:
        """Return when a controller is active, as far as this mode lets anybody see that."""
        ...

    async def wait_for_brokers(self) -> None:
        """Return when every broker answers and knows every other one as alive."""
        ...

    async def wait_for_controllers(self) -> None:
        """Return when every controller knows all that is committed now, as far as this mode lets anybody see that."""
        ...

    async def wait_for_dual_write(self) -> None:
        """Return when controllers of KRaft have taken over from ZooKeeper and write what they decide there, too."""
        ...

    async def compare_with_zookeeper(self) -> None:
        """Wait until ZooKeeper is in step with the metadata log, and note in what they differ."""
        ...

    async def give_up_migration(self) -> None:
        """Stop the controllers of KRaft for good, and take out of ZooKeeper what they claim there: a broker can be the controller again."""
        ...

    async def create_topic(self, topic: str, partitions: int, replicas: int = 1) -> None:
        """Create a topic and return when every broker names a leader for each partition, with all replicas in sync."""
        ...

    async def wait_for_replicas(self, topic: str, partitions: int) -> None:
        """Return when every broker names all replicas of each partition as in sync; note which ones they are."""
        ...

    async def elect_preferred_leaders(self) -> bool:
        """Ask any broker once that each partition be led by its first replica; tell whether there was an answer."""
        ...

    def producer(self, client_id: str, settings: ProducerSettings | None = None) -> ProducerDriver:
        """Return a new producer on a host of its own. librdkafka takes of the settings how many requests may be under way, and nothing else."""
        ...

    def reader(self, client_id: str, *, read_committed: bool = False) -> ReaderDriver:
        """Return a new reader on a host of its own."""
        ...

    def questions(self, client_id: str) -> TransactionQuestions:
        """Return a client of the harness that asks how far partitions are decided, and how far a group has come."""
        ...

    def exact_client(self, client_id: str, topic: str) -> ExactClient:
        """Return a client of the harness that says exactly what it is told to say about one topic."""
        ...

    def workplace(self, name: str) -> Workplace:
        """Return a host for an application that consumes, transforms and produces; its clients are our own in every mode."""
        ...

    def id_asker(self, client_id: str, *, broker: str | None = None) -> IdAsker:
        """Return a new client that asks for producer ids at one broker after the other, or at the one that is named."""
        ...


async def within(stage: Stage, what: str, wait: Awaitable[object], seconds: float) -> None:
    """Wait for something. Raises LivenessLost if that takes longer than so many seconds of the stage."""
    try:
        async with asyncio.timeout(seconds):
            await wait
    except TimeoutError as late:
        raise LivenessLost(f"{what}: not so within {seconds:g} s, at {stage.now_seconds():.1f} s") from late


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One story. `faults` draws a schedule from a seed before anything runs; `play` does the rest on a stage."""

    name: str
    story: str
    must_exercise: tuple[str, ...]
    play: Callable[[Stage], Awaitable[None]]
    faults: Callable[["Random", Mode], tuple[Fault, ...]]
    controllers: int = 1
    controllers_drawn: tuple[int, ...] = ()
    """In simulation, how many controllers a run may have instead: one of these is drawn from its seed."""
    first_voters: int = 0
    """0: the voters stand in the configuration. Else so many controllers format a quorum whose voters stand in the log; the others may join it."""
    brokers: int = 3
    zookeeper_mode: bool = False
    """Whether the brokers keep their metadata in ZooKeeper, a server of ours. Controllers are those that take over then: there may be none."""
    settings: Mapping[str, str] = field(default_factory=dict)
    node_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By name, what single nodes are set to on top of that."""
    swarm: Callable[["Random"], Mapping[str, str]] | None = None
    """Draws settings of one run from its seed, on top of `settings`: what is the same in every run hides what another value would show."""
    terrain: Terrain | None = None
    """Where a search may strike beside what `faults` draws; None: nothing is drawn but that."""
    limit_seconds: float = 600.0
    workload: Mapping[str, int] = field(default_factory=dict)
    """How much is done: knobs and what they usually stand at, for `stage.workload(knob)`. A run may turn each of them down, to 0: then there is less
    to read in a finding. `work_ms`, where there is one, says how long faults go on."""
    fewest_controllers: int = 0
    fewest_brokers: int = 0
    """How few nodes the story can still be played with; 0: no fewer than usual."""
    since: str = ""
    until: str = ""
    """The first and the last release that a cluster can begin with for the story to be true; "": as far as there are any."""

    def is_told_of(self, line: str) -> bool:
        """Tell whether the story is true of clusters that begin with a release. Raises KeyError if there is no such release."""
        known = release(line)
        has_mode = known.has_zookeeper_mode if self.zookeeper_mode else known.has_kraft
        return has_mode and not (self.since and is_before(line, self.since)) and not (self.until and is_before(self.until, line))

    def require_told_of(self, line: str) -> None:
        """Raise ValueError if the story is not true of clusters that begin with a release, KeyError if there is no such release."""
        if not self.is_told_of(line):
            told = [known.name for known in releases() if self.is_told_of(known.name)]
            raise ValueError(f"{self.name} does not support release {line}; choose one of {', '.join(told)}")

    @property
    def least_controllers(self) -> int:
        """How many controllers the story needs."""
        return min(self.fewest_controllers or self.controllers, self.controllers, *self.controllers_drawn)

    @property
    def least_brokers(self) -> int:
        """How many brokers the story needs."""
        return self.fewest_brokers or self.brokers

    def fits(self, controllers: int | None, brokers: int | None) -> bool:
        """Tell whether the story can be played with so many nodes; None: with as many as usual."""
        return not self._misfit(controllers, brokers)

    def require_size(self, controllers: int | None, brokers: int | None) -> None:
        """Raise ValueError if the story cannot be played with so many nodes; None: with as many as usual."""
        why = self._misfit(controllers, brokers)
        if why:
            raise ValueError(why)

    def _misfit(self, controllers: int | None, brokers: int | None) -> str:
        if controllers and not self.controllers:
            return f"{self.name} has no controllers of KRaft: its brokers keep their metadata in ZooKeeper"
        for role, least, asked in (("controllers", self.least_controllers, controllers), ("brokers", self.least_brokers, brokers)):
            if asked is not None and asked < least:
                return f"{self.name} needs {least} {role} or more, not {asked}"
        return ""


SCENARIOS: Catalogue[Scenario] = Catalogue("scenarios", "SCENARIO", Scenario)


def scenarios() -> tuple[Scenario, ...]:
    """Return every scenario, sorted by name."""
    return SCENARIOS.all()


def scenario(name: str) -> Scenario:
    """Return a scenario by its name; '-' and '_' are the same. Raises KeyError naming the ones there are."""
    return SCENARIOS.named(name.replace("-", "_"))
