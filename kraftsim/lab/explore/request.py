"""All inputs of a run."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace as replace_in_struct

from kraftsim import former_names
from kraftsim.cluster.apache_kafka.target import ApacheTarget
from kraftsim.cluster.scenario import Mode, Scenario
from kraftsim.cluster.spec import RELEASE_KEY, ClusterSpec
from kraftsim.former_names import present_name
from kraftsim.lab.faults.fault import Fault, fault_kind, to_json
from kraftsim.lab.faults.fault_space import FaultSpace, Mix
from kraftsim.lab.faults.kinds.request_faults import of_requests
from kraftsim.lab.faults.random_contact_faults import draw_contact_faults
from kraftsim.lab.faults.random_faults import draw_faults, draw_settings
from kraftsim.lab.faults.random_request_faults import draw_request_faults
from kraftsim.lab.faults.request_fault_text import parse_request_fault
from kraftsim.lab.workloads.upgrading import VERSION_KEY
from kraftsim.releases.release import DEFAULT_RELEASE, is_before
from kraftsim.server.config_values import SEGMENT_SIZES
from kraftsim.server.inbox import LARGE_FRAME_BYTES
from kraftsim.world.interface import stream
from kraftsim.world.simulated import Simulation
from kraftsim.world.simulated.link import NetworkSettings

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the seed)


# --------------------------------------------------------------------------------------------------
# The simulated environment of a run: speeds of the network and of the disks without faults, read
# sizes, and the size of large frames
#
# Drawn from the seed, because races depend on it. Half of the runs have the default speeds; the
# others something between a fast rack and another city, and between a battery-backed cache and a
# spinning disk. Frames of a scenario are small and arrive one by one, so half of the runs treat
# smaller frames as large, and read as from a kernel: in pieces that begin and end anywhere.

NANOSECONDS_PER_MICROSECOND = 1000
PER_MILLE = 1000
LATENCIES_US = (30, 300, 1000, 4000)
JITTERS = (0.0, 0.5, 2.0)
"""In parts of the latency."""
TORN_PER_MILLE = (0, 20, 20, 300)
FLUSHES_US = ((50, 200), (500, 2000), (4000, 12_000), (100, 30_000))
LARGE_FRAMES_BYTES = (100, 140, 160, 180, 200, 220, 250, 400)
"""Most requests of scenarios have 60 to 400 bytes: some of them should be large, and some not."""
READS_BYTES = (100, 100, 150, 200, 200, 1000)
LARGE_FRAME_KEY = "kraftsim.large.frame.bytes"
SMALL_SEGMENTS = "kraftsim.small.segments"
"""Every release accepts the segment sizes that scenarios draw."""
USUAL_SHARE = 0.5


class RunEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The latency of bytes in microseconds, and the maximum of its random part; how many of 1000
    writes arrive in two; the range of flush times.

    Frames above `large_frame_bytes` are received into memory of their own; a read returns up to
    `read_bytes`, or, without it, one whole write.
    """

    latency_us: int = 300
    jitter_us: int = 400
    torn_per_mille: int = 20
    flush_us: tuple[int, int] = (500, 2000)
    large_frame_bytes: int = LARGE_FRAME_BYTES
    read_bytes: int = 0

    @property
    def network(self) -> NetworkSettings:
        """The initial state of all links."""
        return NetworkSettings(
            latency_ns=self.latency_us * NANOSECONDS_PER_MICROSECOND,
            jitter_ns=self.jitter_us * NANOSECONDS_PER_MICROSECOND,
            torn_writes=self.torn_per_mille / PER_MILLE,
            read_bytes=self.read_bytes,
        )

    @property
    def flush_ns(self) -> tuple[int, int]:
        """The duration of a flush on a disk without faults."""
        return self.flush_us[0] * NANOSECONDS_PER_MICROSECOND, self.flush_us[
            1
        ] * NANOSECONDS_PER_MICROSECOND

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of every node that depend on it."""
        return (
            {}
            if self.large_frame_bytes == LARGE_FRAME_BYTES
            else {LARGE_FRAME_KEY: str(self.large_frame_bytes)}
        )


def draw_run_environment(random: "Random", frames: "Random") -> RunEnvironment:
    """Draw the environment of one run; the size of large frames is from a separate stream."""
    around = RunEnvironment()
    if frames.random() >= USUAL_SHARE:
        around = RunEnvironment(
            large_frame_bytes=frames.choice(LARGE_FRAMES_BYTES),
            read_bytes=frames.choice(READS_BYTES),
        )
    if random.random() < USUAL_SHARE:
        return around
    latency_us = random.choice(LATENCIES_US)
    return replace_in_struct(
        around,
        latency_us=latency_us,
        jitter_us=int(latency_us * random.choice(JITTERS)),
        torn_per_mille=random.choice(TORN_PER_MILLE),
        flush_us=random.choice(FLUSHES_US),
    )


# --------------------------------------------------------------------------------------------------
# What a seed determines about a run before it begins: its faults and its settings, from the
# scenario's own schedule and from random faults.
#
# The scenario's schedule targets the bugs that it is about; random faults explore everything else.
# A seed uses one of the two or both. All draws are keyed by the seed and a purpose, so that they
# are independent. What random faults and the environment draw is keyed by the scenario as well:
# else a sweep of twelve seeds over eighty scenarios would try twelve selections of kinds in all.

OWN_SHARE = 0.4
"""The share of seeds with the scenario's own schedule alone."""
BOTH_SHARE = 0.2
"""The share of seeds with both; the others have random faults alone.

With `Mix.ON_TOP` all these have random faults on top, those of this share only FEW: more of them
often keep a directed sequence from happening. With `Mix.APART` all have random faults alone.
"""
FEW = 3
HARNESS = "harness"


def faults_of(scenario: Scenario, seed: int, mode: Mode) -> tuple[Fault, ...]:
    """Return the schedule that a seed draws: over sockets the scenario's, in simulation that,
    random faults, or both.
    """
    own = scenario.faults(stream(seed, HARNESS, 1, "faults"), mode)
    if mode is not Mode.SIM or scenario.fault_space is None:
        return own
    if not has_random_faults(scenario, seed):
        return own
    space = scenario.fault_space
    faults = draw_faults(_own_stream(scenario, seed, "swarm"), space)
    request_faults = draw_request_faults(_own_stream(scenario, seed, "request faults"), space)
    contact_faults = draw_contact_faults(_own_stream(scenario, seed, "first contacts"), space)
    is_both = _place(scenario, seed) < OWN_SHARE + BOTH_SHARE
    match space.mix:
        case Mix.ON_TOP:
            few = FEW if is_both else None
            return (*own, *faults[:few], *request_faults[:few], *contact_faults[:few])
        case Mix.APART:
            own = ()
    drawn = (*faults, *request_faults, *contact_faults)
    return (*own, *drawn) if is_both else drawn


def has_random_faults(scenario: Scenario, seed: int) -> bool:
    """Return whether a seed draws random faults, in simulation."""
    return scenario.fault_space is not None and _place(scenario, seed) >= OWN_SHARE


def _own_stream(scenario: Scenario, seed: int, purpose: str) -> "Random":
    """Return the stream of a purpose for one scenario."""
    return stream(seed, scenario.name, 1, purpose)


def _place(scenario: Scenario, seed: int) -> float:
    return _own_stream(scenario, seed, "search").random() if scenario.has_own_faults else 1.0


def _draws_surroundings(scenario: Scenario, seed: int) -> bool:
    """Return whether a run has settings and speeds of its own: not where a directed scenario has
    its own faults alone.
    """
    return has_random_faults(scenario, seed) or (
        scenario.fault_space is not None and scenario.fault_space.mix is Mix.EITHER
    )


def settings_of_kinds(faults: Iterable[Fault], fault_space: FaultSpace) -> dict[str, str]:
    """Return the settings without which kinds of faults lose more than a cluster promises to keep,
    as far as a scenario draws these settings.
    """
    return {
        key: value
        for kind in sorted({fault.kind for fault in faults})
        for key, value in fault_kind(kind).settings.items()
        if key in fault_space.settings
    }


def settings_of(scenario: Scenario, seed: int, mode: Mode) -> Mapping[str, str]:
    """Return the settings that a seed draws: in simulation those of the fault space and of the
    faults, and those that the scenario draws itself.
    """
    drawn: dict[str, str] = {}
    if (
        mode is Mode.SIM
        and scenario.fault_space is not None
        and _draws_surroundings(scenario, seed)
    ):
        drawn.update(
            draw_settings(_own_stream(scenario, seed, "terrain settings"), scenario.fault_space)
        )
        drawn.update(settings_of_kinds(faults_of(scenario, seed, mode), scenario.fault_space))
    if scenario.draw_parameters is not None:
        drawn.update(scenario.draw_parameters(stream(seed, HARNESS, 1, "settings")))
    return drawn


def controllers_of(scenario: Scenario, seed: int, mode: Mode) -> int:
    """Return how many controllers a run has: over sockets the scenario's number, in simulation one
    of its choices, by seed.
    """
    if mode is not Mode.SIM or not scenario.controllers_drawn:
        return scenario.controllers
    return stream(seed, HARNESS, 1, "controllers").choice(scenario.controllers_drawn)


ANY_PORT = 9092
NODE_NAME = re.compile(rb"\b(?:broker|controller)-\d+\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """Two equal requests in simulation give the same event log, byte for byte.

    `release` is that of the nodes at the start; "": as the scenario sets or the seed draws, else
    the default. `faults` is the schedule; None: as the seed draws it. `workload` sets workload
    parameters; `controllers` and `brokers` are numbers of nodes; None: those of the scenario.
    `surroundings` are the speeds of network and disks and the size of large frames; None: as the
    seed draws them. `injected` are faults of requests, as texts, on top of the schedule. `on` is a
    release of Apache Kafka whose nodes run instead of kraftsim's.

    Raises KeyError for an unknown release, ValueError for one that the scenario does not support,
    for an unknown parameter, for fewer nodes than it needs, or for a text that says no fault.
    """

    scenario: Scenario
    mode: Mode
    seed: int
    release: str = ""
    bugs: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] | None = None
    workload: Mapping[str, int] = field(default_factory=dict)
    controllers: int | None = None
    brokers: int | None = None
    surroundings: RunEnvironment | None = None
    injected: tuple[str, ...] = ()
    on: ApacheTarget | None = None

    def __post_init__(self) -> None:
        workload = {
            present_name(former_names.WORKLOAD, name, "workload parameter"): value
            for name, value in self.workload.items()
        }
        object.__setattr__(self, "workload", workload)
        unknown = sorted(
            parameter
            for parameter in set(self.workload) - set(self.scenario.workload)
            if not parameter.startswith(self.scenario.workload_prefixes)
        )
        if unknown:
            raise ValueError(
                f"{self.scenario.name} has no workload parameter {unknown[0]} (it has: "
                f"{', '.join(self.scenario.workload) or 'none'})"
            )
        if self.asked_release:
            self.scenario.require_release(self.asked_release)
        self.scenario.require_size(self.controllers, self.brokers)
        for text in self.injected:
            parse_request_fault(text)

    def on_apache_kafka(self, target: ApacheTarget) -> "RunRequest":
        """Return the request for nodes of Apache Kafka: processes of that release, without bugs of
        kraftsim's.

        Raises ValueError if the scenario does not support the release, or needs ZooKeeper.
        """
        if self.scenario.zookeeper_mode:
            raise ValueError(
                f"{self.scenario.name} needs ZooKeeper: on Apache Kafka, scenarios run in KRaft "
                "mode"
            )
        return replace(
            self,
            mode=Mode.PROCESSES,
            release=target.line,
            bugs=(),
            settings={key: value for key, value in self.settings.items() if key != RELEASE_KEY},
            on=target,
        )

    @property
    def asked_release(self) -> str:
        """The release that the caller requests; "" if any."""
        return self.settings.get(RELEASE_KEY, self.release)

    @property
    def is_as_drawn(self) -> bool:
        """Return whether the scenario, the seed, the settings, the numbers of nodes and the
        workload parameters determine the run.
        """
        return self.faults is None and self.surroundings is None

    def schedule(self) -> tuple[Fault, ...]:
        """Return the faults of the run: the given ones, else those that the seed draws, and the
        injected ones; without those of nodes that the cluster does not have.
        """
        faults = (
            self.faults
            if self.faults is not None
            else faults_of(self._searched, self.seed, self.mode)
        )
        there = {
            name.encode() for name in self.spec(port=ANY_PORT).node_names
        }  # for membership only, never iterated
        return tuple(
            fault
            for fault in (*faults, *map(of_requests, self.injected))
            if all(name in there for name in NODE_NAME.findall(to_json([fault])))
        )

    def work(self) -> dict[str, int]:
        """Return the value of every workload parameter."""
        return {**self.scenario.workload, **self.workload}

    def around(self) -> RunEnvironment:
        """Return the speeds of network and disks, and the size of large frames: as given, else as
        the seed draws them, if allowed.
        """
        if self.surroundings is not None:
            return self.surroundings
        if not _draws_surroundings(self.scenario, self.seed):
            return RunEnvironment()
        return draw_run_environment(
            _own_stream(self.scenario, self.seed, "surroundings"),
            _own_stream(self.scenario, self.seed, "large frames"),
        )

    def simulation(self) -> Simulation:
        """Return an empty simulation for the run; the caller closes it."""
        around = self.around()
        return Simulation(
            self.seed,
            run=self.spec(port=ANY_PORT).run,
            network=around.network,
            flush_ns=around.flush_ns,
        )

    def spec(self, port: int) -> ClusterSpec:
        """Return the cluster of the scenario, with the caller's settings on top."""
        around = self.around().settings if self.mode is Mode.SIM else {}
        controllers = self._controllers
        settings = {**around, **self._scenario_settings(), **self.settings}
        if any(name in settings for name in SEGMENT_SIZES):
            settings.setdefault(SMALL_SEGMENTS, "true")
        spec = ClusterSpec(
            zookeeper=self.scenario.zookeeper_mode,
            controllers=controllers,
            first_voters=min(self.scenario.first_voters, controllers),
            brokers=self._brokers,
            combined=min(self.scenario.combined, controllers, self._brokers),
            release=settings.pop(RELEASE_KEY, DEFAULT_RELEASE),
            port=port,
            seed=self.seed,
            run=f"{self.scenario.name}-{self.seed}",
            bugs=self.bugs,
            settings=settings,
        )
        there = {
            name: values
            for name, values in self.scenario.node_settings.items()
            if name in spec.node_names
        }
        return replace(spec, node_settings=there) if there else spec

    @property
    def fault_space(self) -> FaultSpace | None:
        """The fault space of the requested numbers of nodes; None without random faults."""
        return self._searched.fault_space

    @property
    def _controllers(self) -> int:
        return (
            controllers_of(self.scenario, self.seed, self.mode)
            if self.controllers is None
            else self.controllers
        )

    @property
    def _brokers(self) -> int:
        return self.scenario.brokers if self.brokers is None else self.brokers

    @property
    def _searched(self) -> Scenario:
        """The scenario with the fault space of the requested numbers of nodes."""
        fault_space = self.scenario.fault_space
        if fault_space is None or (self.controllers is None and self.brokers is None):
            return self.scenario
        return replace(
            self.scenario,
            fault_space=fault_space.of_size(controllers=self._controllers, brokers=self._brokers),
        )

    def _scenario_settings(self) -> dict[str, str]:
        """Return the settings of the scenario and those that the seed draws; with a requested
        release, no level above it.
        """
        settings = {**self.scenario.settings, **settings_of(self._searched, self.seed, self.mode)}
        requested = self.asked_release
        if requested:
            settings[RELEASE_KEY] = requested
            if VERSION_KEY in settings and is_before(requested, settings[VERSION_KEY]):
                settings[VERSION_KEY] = requested
        return settings
