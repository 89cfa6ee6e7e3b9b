"""Clients that run while a scenario changes the cluster: writers, optionally a
consume-transform-produce application, and a producer-id client that requests ids after each
restart.

Shared by upgrades and migrations: the scenario takes the cluster from one state to another, and
clients run until it has finished.
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Final

from kraftsim.cluster.scenario import (
    LivenessLost,
    ProducerIdClient,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.lab.workloads.course import COURSE_FAULT_SECONDS, Course
from kraftsim.lab.workloads.phases import CALLS_SECONDS
from kraftsim.lab.workloads.upgrading import ContinuousTransformApp, Traffic, Upgrade
from kraftsim.lab.workloads.worn_sequences import producer_of
from kraftsim.releases.release import release
from kraftsim.releases.traits import PREFETCHED_PRODUCER_IDS, RETRIABLE_BLOCK_TIMEOUT
from protocol.errors import ErrorCode

TOPIC: Final = "ledger"
PARTITIONS: Final = 3
PROVEN: Final = (
    "producer-id-unique",
    "producer-id-blocks-disjoint",
    "producer-id-inside-owned-block",
    "acknowledged-records-in-final-log",
    "one-append-per-sequence",
    "only-retriable-errors",
    "recovers-after-heal",
)
"""Invariants that every run of such a scenario must exercise."""
PROVEN_WITH_APP: Final = tuple(each for each in PROVEN if each != "only-retriable-errors")
"""Those of a run with an application: with faults its transactions may be fenced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderLoad:
    """What an upgrade or a migration works with: `upgrade` restarts nodes, its `course` meets the
    faults of the run, and `requester` requests producer ids.
    """

    stage: ScenarioEnvironment
    upgrade: Upgrade
    course: Course
    requester: ProducerIdClient
    ids_per_restart: int

    async def ask(self, count: int | None = None) -> None:
        """Request so many ids, or as many as after each restart."""
        await self.course.ask(self.requester, self.ids_per_restart if count is None else count)


Walk = Callable[[UnderLoad], Awaitable[None]]


async def while_clients_work(
    stage: ScenarioEnvironment,
    walk: Walk,
    *,
    ids_per_restart: int,
    steps_max: int,
    fault_seconds: float = COURSE_FAULT_SECONDS,
    transform_app: ContinuousTransformApp | None = None,
) -> None:
    """Run an upgrade or a migration with running clients, and read what they wrote.

    The faults of the run begin with one of the first `steps_max` steps and last for so many
    seconds; see `Course`. Raises ScenarioFailed
    unless each record is there once.
    """
    traffic, topics = Traffic(topic=TOPIC, partitions=PARTITIONS), {TOPIC: PARTITIONS}
    await traffic.open(stage, is_alone=transform_app is None)
    beside: list[Coroutine[object, object, None]] = []
    if transform_app is not None:
        await transform_app.open(stage)
        topics |= {
            transform_app.input_topic: transform_app.partitions,
            transform_app.output_topic: transform_app.partitions,
        }
        transform_workers = [
            transform_app.copy(stage, number) for number in range(1, stage.workload("copiers") + 1)
        ]
        beside = [
            transform_app.wait_for_completion(stage),
            transform_app.watch(stage),
            *transform_workers,
        ]
    writers = [
        traffic.write(stage, f"writer-of-{TOPIC}-{number}")
        for number in range(1, stage.workload("writers") + 1)
    ]

    course = Course(stage=stage, steps_max=steps_max, seconds=fault_seconds)

    async def to_the_end() -> None:
        requester = stage.producer_id_client("asker")

        async def ask() -> None:
            await course.ask(requester, ids_per_restart)

        upgrade = Upgrade(stage=stage, topics=topics, after_each=ask, course=course)
        await walk(
            UnderLoad(
                stage=stage,
                upgrade=upgrade,
                course=course,
                requester=requester,
                ids_per_restart=ids_per_restart,
            )
        )
        await course.finish()
        await upgrade.settled()
        await requester.close()
        traffic.is_over = True
        if transform_app is not None:
            transform_app.is_over = True

    await course.run(to_the_end(), *beside, *writers)
    await traffic.audit(stage)
    if transform_app is not None:
        await transform_app.audit(stage)


# --------------------------------------------------------------------------------------------------
# A single writer at a steady rate, for scenarios about something else, so that there are records
# that could be lost


async def write_lines(
    stage: ScenarioEnvironment, topic: str, partitions: int, count: int, *, pause_seconds: float
) -> None:
    """Write so many records, round-robin over the partitions, with a pause after each.

    Raises LivenessLost if some are not acknowledged in time.
    """
    writer = producer_of(stage, "writer-1")
    await writer.start()
    for index in range(count):
        await writer.send(topic, index % partitions, str(index), f"line {index}".encode())
        await stage.sleep(pause_seconds)
    left = await writer.flush(CALLS_SECONDS)
    await writer.close()
    if left:
        raise LivenessLost(
            f"the writer has {left} unacknowledged records {CALLS_SECONDS:g} s after it sent the "
            "last one"
        )


# --------------------------------------------------------------------------------------------------
# What clients receive, by release, when no block of producer ids is available, and how a
# pre-KAFKA-14417 producer reacts
#
# Source: KIP-730, KAFKA-14417 (brokers and clients), KAFKA-14694; observed on Apache Kafka 3.0.2,
# 3.3.2 and 3.6.2 in KRaft mode.

RETRIED_ERRORS: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""Errors after which a pre-3.3.2 producer retries; any other error is fatal to it."""


def waits_for_ids(line: str) -> bool:
    """Return whether brokers of a release block the client's request until a block of ids is
    available.
    """
    return not release(line).has(PREFETCHED_PRODUCER_IDS)


def answer_without_ids(line: str) -> ErrorCode:
    """Return the error with which brokers of a release answer when there is no block."""
    return (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if release(line).has(RETRIABLE_BLOCK_TIMEOUT)
        else ErrorCode.REQUEST_TIMED_OUT
    )


async def answer_once(course: Course, client: ProducerIdClient, seconds: float) -> ErrorCode:
    """Return the error of one answer, within so many seconds without faults. Raises
    LivenessLost.
    """
    answers = []

    async def ask() -> None:
        answers.append(await client.ask_once())

    await course.within("an answer", ask(), seconds)
    return answers[0]


async def retry_as_before(
    stage: ScenarioEnvironment, requester: ProducerIdClient, pause_seconds: float
) -> None:
    """Retry as a pre-3.3.2 producer does. Raises ScenarioFailed on an error that is fatal to it."""
    while (error := await requester.ask_once()) is not ErrorCode.NONE:
        if error not in RETRIED_ERRORS:
            raise ScenarioFailed(f"{error.name} is fatal to a pre-3.3.2 producer")
        await stage.sleep(pause_seconds)
