"""The workload of upgrade scenarios: nodes restart with another release one by one, levels are
finalized, and clients keep running.

The order is that of Kafka's upgrade guides: first the binaries of all brokers, then those of the
controllers, then the levels of metadata.version and of the other features; in ZooKeeper mode
inter.broker.protocol.version keeps its value until all brokers are new, and a second round of
restarts raises it. Each node is ready again, and its replicas are in sync, before the next one
restarts.
Source: the upgrade chapters of Kafka's documentation 2.3 to 4.x, KIP-584, KIP-778.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftsim.cluster.scenario import LivenessLost, ScenarioEnvironment, ScenarioFailed, within
from kraftsim.events.runs import OnlyRetriableErrorsExpected, PhaseBegan
from kraftsim.lab.workloads.course import Course
from kraftsim.lab.workloads.phases import (
    BROKERS_SECONDS,
    CALLS_SECONDS,
    CONTROLLERS_SECONDS,
    LEADER_SECONDS,
    REPLICAS_SECONDS,
    all_serve,
)
from kraftsim.lab.workloads.transform_app import TransformApp
from kraftsim.metadata.rules_versions import FEATURE, default_levels, is_lossless
from kraftsim.releases.release import Release, known_releases, release, releases

AWAY_SECONDS = 8.0
GIVEN_UP_SECONDS = 60.0
"""Time limit within which a controller that cannot read the metadata log exits, however slow the
machine is.
"""
LOOK_SECONDS = 0.5
NOT_YET = ("has not registered", "only supports versions")
"""In the error of a level while a controller has not yet registered its supported features, or
those of its new release.
"""
VERSION_KEY = "inter.broker.protocol.version"


def kraft_lines() -> tuple[str, ...]:
    """Return the release lines with KRaft mode, oldest first."""
    return tuple(known.name for known in releases() if known.has_kraft)


def unreleased_lines() -> tuple[str, ...]:
    """Return the names of what comes after the newest release."""
    return tuple(known.name for known in known_releases() if not known.is_released)


def zookeeper_lines() -> tuple[str, ...]:
    """Return the release lines with ZooKeeper mode, oldest first."""
    return tuple(known.name for known in releases() if known.has_zookeeper_mode)


UPGRADE_PATH: Final = "kraftsim.upgrade.path"
"""A setting of the cluster that nodes ignore: the releases to upgrade to."""


def path_from(stage: ScenarioEnvironment, lines: Sequence[str], hops_max: int) -> list[str]:
    """Return the releases to upgrade to, in order: those of the setting UPGRADE_PATH, else chosen
    at random among the later lines, all of them if that many are requested. What is not released
    is never chosen, and follows the last line if it is asked for.

    Raises ScenarioFailed for a path that does not lead upwards through `lines`.
    """
    known = [*lines, *(unreleased_lines() if lines[-1] == kraft_lines()[-1] else ())]
    possible = known[known.index(present_line(stage)) + 1 :]
    asked = [line for line in stage.spec.settings.get(UPGRADE_PATH, "").split(",") if line]
    if asked:
        if asked != sorted({*asked} & {*possible}, key=possible.index):
            raise ScenarioFailed(
                f"the path {','.join(asked)} does not lead upwards from {present_line(stage)} "
                f"through {', '.join(possible)}"
            )
        return asked
    later = [line for line in possible if line in lines]
    hops = min(hops_max, len(later))
    return sorted(stage.random("path").sample(later, hops), key=later.index)


def later_line(stage: ScenarioEnvironment) -> str:
    """Return a random later release."""
    return path_from(stage, kraft_lines(), 1)[0]


def present_line(stage: ScenarioEnvironment) -> str:
    """Return the release line that the cluster begins with."""
    return stage.spec.release


@dataclass(kw_only=True, slots=True)
class Upgrade:
    """The upgrade of one cluster.

    `topics` must be in sync again after each restart: topic -> partitions; then `after_each` runs.
    With a `course` its steps meet faults; without one nothing else fails, and each wait has its
    limit from its beginning.
    """

    stage: ScenarioEnvironment
    topics: Mapping[str, int]
    after_each: Callable[[], Awaitable[None]] | None = None
    course: Course | None = None

    async def roll(
        self,
        names: Iterable[str],
        *,
        to: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Restart nodes one after the other, with another release or other settings; the next one
        restarts when the cluster is healthy again.
        """
        for name in names:
            self.step()
            await self.stage.restart(name, release=to, settings=settings)
            await self.settled()
            if self.after_each is not None:
                await self.after_each()

    async def roll_all(self, line: str) -> None:
        """Restart all brokers, then all controllers, with a release."""
        await self.brokers_to(line)
        self.stage.emit(PhaseBegan(phase=f"controllers-to-{line}"))
        await self.roll(self.stage.spec.controller_names, to=line)

    async def brokers_to(self, line: str) -> None:
        """Restart all brokers with a release."""
        self.stage.emit(PhaseBegan(phase=f"brokers-to-{line}"))
        await self.roll(self.stage.spec.broker_names, to=line)

    async def raise_version(self, line: str) -> None:
        """Restart all brokers with the inter.broker.protocol.version of a release."""
        self.stage.emit(PhaseBegan(phase=f"version-{line}"))
        await self.roll(self.stage.spec.broker_names, settings={VERSION_KEY: line})

    async def finalize(self, line: str) -> None:
        """Raise metadata.version to the newest level of a release, and then the other features to
        the defaults of a new cluster of that release.
        """
        known = release(line)
        self.stage.emit(PhaseBegan(phase=f"finalize-{line}"))
        self.step()
        await self._update({FEATURE: known.metadata_version})
        others = new_features(known)
        if others:
            await self._update(others)
        await self.settled()

    async def settled(self) -> None:
        """Return when there is a leader, all nodes are ready and all replicas are in sync.

        Raises LivenessLost.
        """
        stage = self.stage
        if stage.spec.controllers:
            await self.within("leader", stage.wait_for_leader(), LEADER_SECONDS)
            await self.within("controllers", stage.wait_for_controllers(), CONTROLLERS_SECONDS)
        await self.serving()
        for topic, partitions in self.topics.items():
            await self.within(
                "replicas", stage.wait_for_replicas(topic, partitions), REPLICAS_SECONDS
            )

    async def serving(self) -> None:
        """Return when all brokers are ready. Raises LivenessLost."""
        stage, course = self.stage, self.course
        ready = (
            stage.wait_for_brokers()
            if course is None
            else all_serve(stage, may_restart=lambda: course.is_healed)
        )
        await self.within("brokers", ready, BROKERS_SECONDS)

    def step(self) -> None:
        """Begin a step of the course, if there is one."""
        if self.course is not None:
            self.course.step()

    async def until_healed(self) -> None:
        """Return when no fault lasts."""
        if self.course is not None:
            await self.course.until_healed()

    async def within(self, what: str, wait: Awaitable[object], seconds: float) -> None:
        """Wait for something, as `Course.within` does. Raises LivenessLost."""
        if self.course is None:
            await within(self.stage, what, wait, seconds)
        else:
            await self.course.within(what, wait, seconds)

    async def _update(self, levels: Mapping[str, int]) -> None:
        """Raise levels."""
        await self.within("levels", self._until_granted(levels), CONTROLLERS_SECONDS)

    async def _until_granted(self, levels: Mapping[str, int]) -> None:
        """Request levels until they are granted. Controllers register only once metadata.version
        supports it, or a while after a restart; until then their supported features are unknown
        (KIP-919). Raises ScenarioFailed at any other refusal, unless faults lasted.
        """
        stage, course = self.stage, self.course
        while True:
            is_disturbed = course is not None and course.lasts
            refusals = await stage.update_features(levels)
            if not refusals:
                return
            if not is_disturbed and not all(
                any(hint in why for hint in NOT_YET) for why in refusals.values()
            ):
                raise ScenarioFailed(f"the levels {dict(levels)} were refused: {refusals}")
            await stage.sleep(LOOK_SECONDS)


async def require_level_kept(stage: ScenarioEnvironment, former: str, line: str) -> None:
    """Downgrade metadata.version to that of a former release.

    Raises ScenarioFailed if a lossy downgrade succeeds, or a lossless one is refused.

    A downgrade that succeeded is reverted.
    """
    below, level = release(former).metadata_version, release(line).metadata_version
    refusals = await stage.update_features({FEATURE: below}, downwards=True)
    if bool(refusals) is is_lossless(level, below):
        raise ScenarioFailed(f"{FEATURE} from {level} down to {below}: {refusals or 'granted'}")
    if not refusals:
        again = await stage.update_features({FEATURE: level})
        if again:
            raise ScenarioFailed(f"{FEATURE} is not raised to {level} again: {again}")


async def require_away(stage: ScenarioEnvironment, node: str) -> None:
    """Watch a node for a while that must not become ready. Raises ScenarioFailed if it does."""
    is_controller = node in stage.spec.controller_names
    give_up_at = stage.now_seconds() + (GIVEN_UP_SECONDS if is_controller else AWAY_SECONDS)
    while stage.now_seconds() < give_up_at:
        if stage.is_down(node):
            return
        await stage.sleep(LOOK_SECONDS)
    if is_controller:
        raise ScenarioFailed(
            f"{node} still runs after {GIVEN_UP_SECONDS:g} s, but cannot read the metadata log"
        )
    try:
        await within(stage, node, stage.wait_for_brokers(), LOOK_SECONDS)
    except LivenessLost:
        return
    raise ScenarioFailed(f"{node} is ready, but does not support the level of the cluster")


def new_features(known: Release) -> dict[str, int]:
    """Return feature -> level of a new cluster of a release, without metadata.version."""
    return default_levels(known.metadata_version, known.supported_features)


@dataclass(kw_only=True, slots=True)
class Traffic:
    """Writers that send a record to each partition, over and over, until `is_over`; `sent` counts
    the records to be found afterwards.
    """

    topic: str
    partitions: int
    replicas: int = 3
    is_over: bool = False
    sent: dict[str, int] = field(default_factory=dict)
    """client -> how many records it has sent."""

    async def open(self, stage: ScenarioEnvironment, *, is_alone: bool = True) -> None:
        """Create the topic, and declare that clients must receive only retriable errors from now
        on, whatever fails: unless the writers are not alone, and something fails. Then transactions
        time out, and their producers are fenced.
        """
        await stage.create_topic(self.topic, self.partitions, self.replicas)
        if not is_alone and stage.faults:
            return
        stage.emit(OnlyRetriableErrorsExpected(scenario=stage.spec.run))

    async def write(self, stage: ScenarioEnvironment, client_id: str) -> None:
        """Be one writer."""
        writer = stage.producer(client_id)
        await writer.start()
        index = 0
        while not self.is_over or index < self.partitions:
            await writer.send(
                self.topic, index % self.partitions, f"{client_id}.{index}", b"line %d" % index
            )
            index += 1
            await stage.sleep(stage.workload("pause_ms") / 1000)
        self.sent[client_id] = index
        left = await writer.flush(CALLS_SECONDS)
        await writer.close()
        if left:
            raise LivenessLost(
                f"{client_id} has {left} unacknowledged records {CALLS_SECONDS:g} s after it "
                "sent the last one"
            )

    async def audit(self, stage: ScenarioEnvironment) -> None:
        """Read everything, once all replicas have it: the writers ended after the last wait.

        Raises ScenarioFailed unless every record is there exactly once.
        """
        await stage.wait_for_replicas(self.topic, self.partitions)
        reader = stage.reader(f"{self.topic}-reader")
        read = [record.key for record in await reader.read_all(self.topic, range(self.partitions))]
        await reader.close()
        wanted = {
            f"{client_id}.{index}"
            for client_id, count in self.sent.items()
            for index in range(count)
        }
        if len(read) != len(set(read)) or set(read) != wanted:
            raise ScenarioFailed(
                f"of {len(wanted)} records {len(wanted - set(read))} are missing and "
                f"{len(read) - len(set(read))} are duplicated"
            )


@dataclass(kw_only=True, slots=True)
class ContinuousTransformApp(TransformApp):
    """The consume-transform-produce application with an input that is written until the upgrade is
    over.
    """

    is_over: bool = False
    written: dict[int, int] = field(default_factory=dict)

    async def write(self, stage: ScenarioEnvironment, number: int) -> None:
        """Run one writer of the input."""
        writer = stage.producer(self._called(f"writer-{number}"))
        await writer.start()
        index = 0
        while not self.is_over or index < self.partitions:
            await writer.send(
                self.input_topic, index % self.partitions, f"{number}.{index}", b"line %d" % index
            )
            index += 1
            await stage.sleep(stage.workload("pause_ms") / 1000)
        self.written[number] = index
        left = await writer.flush(CALLS_SECONDS)
        await writer.close()
        if left:
            raise LivenessLost(
                f"{self._called(f'writer-{number}')} has {left} unacknowledged records"
            )

    def keys(self, stage: ScenarioEnvironment) -> list[str]:
        """Return the keys of all records of the input."""
        return [
            f"{number}.{index}"
            for number, count in sorted(self.written.items())
            for index in range(count)
        ]
