"""Upgrades from 3.0 with ZooKeeper unavailable at each broker in turn; checks that InitProducerId
returns the error of the broker's release.

From inter.broker.protocol.version 3.0 on brokers send AllocateProducerIds to the controller, which
allocates blocks in ZooKeeper. After each restart ZooKeeper is unavailable, and a producer requests
an id from the restarted broker, which has no block yet. Up to 3.3.1 it returns REQUEST_TIMED_OUT
after request.timeout.ms, and a producer of that time fails; up to 3.5 it returns
COORDINATOR_LOAD_IN_PROGRESS after the same time; from 3.6 on it returns that at once. A current
producer retries in each case, and so does one of that time on the latter error: both get their ids
as soon as ZooKeeper is back.
Source: KIP-730, KAFKA-14417 (brokers and clients), KAFKA-14694; tested with Apache Kafka 3.0.2,
3.3.2 and 3.6.2 without ZooKeeper.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import (
    Mode,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.events.runs import PhaseBegan
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, WRITER_APIS, zookeeper_fault_space
from kraftsim.lab.workloads.course import COURSE_FAULT_SECONDS, Course
from kraftsim.lab.workloads.quorum_scenarios import has_only
from kraftsim.lab.workloads.replication_workload import SETTINGS
from kraftsim.lab.workloads.under_load import (
    PROVEN,
    RETRIED_ERRORS,
    answer_once,
    answer_without_ids,
    retry_as_before,
    waits_for_ids,
)
from kraftsim.lab.workloads.upgrading import VERSION_KEY, Traffic, Upgrade, zookeeper_lines

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC = "ledger"
PARTITIONS = 3
SERVER = "zookeeper-1"
FIRST = "3.0"
WAIT_SECONDS = 2.0
"""request.timeout.ms of the brokers."""
PATIENCE_SECONDS = 60.0
ANSWERED_SECONDS = 10.0
"""Under random faults ZooKeeper is down until an answer, or for this long."""
START_AGAIN_SECONDS = 1.0
STEPS_MAX = 9
"""The restarts of three brokers with three releases."""


async def run(stage: ScenarioEnvironment) -> None:
    """Upgrade step by step with ZooKeeper unavailable at every broker, and read what was written
    meanwhile.
    """
    traffic = Traffic(topic=TOPIC, partitions=PARTITIONS)
    await traffic.open(stage)
    writers = [
        traffic.write(stage, f"writer-{number}")
        for number in range(1, stage.workload("writers") + 1)
    ]
    course = Course(stage=stage, steps_max=STEPS_MAX, seconds=COURSE_FAULT_SECONDS)
    await course.run(_climb(stage, traffic, course), *writers)
    await traffic.audit(stage)


async def _climb(stage: ScenarioEnvironment, traffic: Traffic, course: Course) -> None:
    upgrade = Upgrade(stage=stage, topics={TOPIC: PARTITIONS}, course=course)
    for line in path(stage):
        stage.emit(PhaseBegan(phase=f"brokers-to-{line}"))
        for name in stage.spec.broker_names:
            await upgrade.roll([name], to=line)
            await _ask_in_vain(stage, course, name, line)
            await upgrade.settled()
    await course.finish()
    await upgrade.settled()
    traffic.is_over = True


def path(stage: ScenarioEnvironment) -> list[str]:
    """Return the upgrade path: the first release, and one drawn release for each kind of error."""
    random, later = stage.random("path"), zookeeper_lines()[zookeeper_lines().index(FIRST) + 1 :]
    ways = dict.fromkeys((waits_for_ids(line), answer_without_ids(line)) for line in later)
    return [
        FIRST,
        *(
            random.choice(
                [line for line in later if (waits_for_ids(line), answer_without_ids(line)) == way]
            )
            for way in ways
        ),
    ]


async def _ask_in_vain(stage: ScenarioEnvironment, course: Course, name: str, line: str) -> None:
    """Request an id from a broker without a block while ZooKeeper is down.

    Raises ScenarioFailed unless it returns its release's error; with random faults, which may start
    ZooKeeper again or delay the answer, it may return any.
    """
    await stage.kill(SERVER)
    older, newer = (
        stage.producer_id_client(f"{which}-producer-at-{line}-of-{name}", broker=name)
        for which in ("older", "newer")
    )
    is_exact = has_only(stage, no_faults)
    began, error = stage.now_seconds(), None
    with suppress(TimeoutError):
        # a broker that a fault has restarted meanwhile cannot start without ZooKeeper, and answer
        async with asyncio.timeout(None if is_exact else ANSWERED_SECONDS):
            error = await answer_once(course, older, PATIENCE_SECONDS)
    waited = stage.now_seconds() - began
    if is_exact and (error is not answer_without_ids(line) or not _is_in_time(stage, line, waited)):
        returned = "nothing" if error is None else error.name
        raise ScenarioFailed(
            f"{name} of {line} returned {returned} after {waited:.1f} s without producer ids"
        )
    work = [course.ask(newer, 1), stage.restart(SERVER)]
    if is_exact and error in RETRIED_ERRORS:
        work.append(retry_as_before(stage, older, stage.workload("pause_ms") / 1000))
    if is_exact:
        await course.within("producer ids", stage.gather(*work), PATIENCE_SECONDS)
    else:
        is_over = asyncio.Event()

        async def ask() -> None:
            await stage.gather(*work)
            is_over.set()

        both = stage.gather(ask(), _start_again(stage, is_over))
        await course.within("producer ids", both, PATIENCE_SECONDS)
    await older.close()
    await newer.close()


async def _start_again(stage: ScenarioEnvironment, is_over: asyncio.Event) -> None:
    """Start brokers again that have ended because they found no ZooKeeper as they started."""
    while not is_over.is_set():
        for name in stage.spec.broker_names:
            if stage.is_down(name):
                await stage.restart(name)
        await stage.sleep(START_AGAIN_SECONDS)


def _is_in_time(stage: ScenarioEnvironment, line: str, waited: float) -> bool:
    """Return whether a broker responded as late as its release does; over sockets the time depends
    on the machine.
    """
    if waits_for_ids(line):
        return waited >= WAIT_SECONDS
    return waited < WAIT_SECONDS or stage.mode is not Mode.SIM


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: with the ZooKeeper outages alone each answer is known exactly."""
    return ()


SCENARIO = Scenario(
    name="producer_ids_unavailable_during_upgrade",
    summary="Producer ids are unavailable at each broker of an upgrade from 3.0: each release "
    "returns the error that it is known for.",
    must_exercise=PROVEN,
    run=run,
    faults=no_faults,
    controllers=0,
    zookeeper_mode=True,
    settings={
        **SETTINGS,
        "kraftsim.release": FIRST,
        VERSION_KEY: FIRST,
        "request.timeout.ms": str(int(WAIT_SECONDS * 1000)),
    },
    fault_space=zookeeper_fault_space(
        brokers=3,
        clients=("writer-1",),
        apis=(*WRITER_APIS, *PRODUCER_ID_APIS),
        fault_seconds=COURSE_FAULT_SECONDS,
    ),
    limit_seconds=1200.0,
    workload={"writers": 1, "pause_ms": 100},
    fewest_brokers=3,
    since=FIRST,
)
