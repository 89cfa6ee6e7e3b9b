"""Administrators create topics and change configurations while quorum leaders fail; checks that
exactly the acknowledged changes persist.

Several administrators work at once, so that a leader always has more than one change in progress.
It is isolated just after one change is committed and before the next is: it must revert exactly
what it wrote and could not commit, and continue as a follower. Administrators retry, and the next
leader creates the same topic again. Snapshots are written all the time and the logs before them are
deleted, so that controllers and brokers that return start from a snapshot, and must find every
configuration in it. A broker that does not respond may forward a change long after another broker
did, as Apache Kafka's brokers do; nothing is guaranteed for such a topic.

Over sockets the leader is killed at random times.
Source: KIP-595, KIP-630, KIP-339, org.apache.kafka.timeline.SnapshotRegistry (revertToSnapshot).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, within
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    LEADER_TARGET,
    AtTime,
    DataLoss,
    Fault,
    OnEvent,
    OnState,
    Trigger,
)
from kraftsim.lab.faults.fault_space import Mix
from kraftsim.lab.faults.quorum_spaces import ADMINISTRATOR_APIS, quorum_fault_space
from kraftsim.lab.workloads.administrator import Administrator
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import QUICK_SESSIONS, QUICKER_ELECTIONS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 7.0
WORKLOAD = {
    "administrators": 4,
    "topics_each": 6,
    "changes_per_topic": 3,
    "work_ms": int(WORK_SECONDS * 1000),
}
PAUSE_SECONDS = 0.1
LOOK_SECONDS = 0.1
KNOWN_SECONDS = 20.0
"""A broker that has just started reads a snapshot and a few records."""
AGE, SIZE = "retention.ms", "segment.bytes"
FIRST_AGE, FIRST_SIZE = 1_000_000, 1 << 20

Wanted = dict[str, dict[str, str]]
"""Topic -> configurations that were set last and not deleted."""


async def run(stage: ScenarioEnvironment) -> None:
    """Change metadata under faults, restart a broker and all controllers, one after the other, so
    that each run has a second leader, and compare the brokers' metadata with the acknowledged
    changes.
    """
    acknowledged: Wanted = {}
    numbers = range(1, stage.workload("administrators") + 1)
    await under_faults(
        stage,
        *(_administer(stage, number, acknowledged) for number in numbers),
        seconds=stage.workload("work_ms") / 1000,
    )
    last = stage.spec.broker_names[-1]
    await stage.restart(last)
    await stage.wait_for_brokers()
    for name in stage.spec.controller_names:
        await stage.restart(name)
        await stage.wait_for_controllers()
    looker = Administrator(stage.client_host("looker"))
    for broker_id in range(1, stage.spec.brokers + 1):
        await within(
            stage,
            f"broker {broker_id} has the acknowledged configurations",
            _knows(stage, looker, broker_id, acknowledged),
            KNOWN_SECONDS,
        )
    looker.close()


async def _administer(stage: ScenarioEnvironment, number: int, acknowledged: Wanted) -> None:
    """Create topics, change the configuration of each, and delete one of two configurations of
    every other topic.
    """
    administrator = Administrator(stage.client_host(f"administrator-{number}"))
    random = stage.random(f"administrator-{number}")
    for index in range(stage.workload("topics_each")):
        topic = f"topic-{number}-{index}"
        await administrator.create_topic(topic)
        wanted: dict[str, str] = {}
        for change in range(stage.workload("changes_per_topic")):
            changes = {AGE: str(FIRST_AGE + change), SIZE: str(FIRST_SIZE + change)}
            await administrator.configure(topic, changes)
            wanted.update(changes)
        if index % 2:
            await administrator.configure(topic, {SIZE: None})
            del wanted[SIZE]
        if topic not in administrator.in_doubt:
            acknowledged[topic] = wanted
        await stage.sleep(random.uniform(0, 2 * PAUSE_SECONDS))
    administrator.close()


async def _knows(
    stage: ScenarioEnvironment, looker: Administrator, broker_id: int, acknowledged: Wanted
) -> None:
    for topic, wanted in acknowledged.items():
        while not await _agrees(looker, broker_id, topic, wanted):
            await stage.sleep(LOOK_SECONDS)


async def _agrees(
    looker: Administrator, broker_id: int, topic: str, wanted: dict[str, str]
) -> bool:
    found = await looker.configured(broker_id, topic, [AGE, SIZE])
    if found is None:
        return False
    taken_away = SIZE not in wanted
    return all(found.get(name) == value for name, value in wanted.items()) and not (
        taken_away and _is_ours(found.get(SIZE))
    )


def _is_ours(size: str | None) -> bool:
    return size is not None and FIRST_SIZE <= int(size) < FIRST_SIZE + WORKLOAD["changes_per_topic"]


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw failures of leaders at a commit, most of them isolated, some with a power loss; over
    sockets kills at random times.
    """
    if mode is not Mode.SIM:
        return tuple(
            _restart(random, LEADER_TARGET, AtTime(at_ms=at_ms))
            for at_ms in (random.randint(500, 1500), random.randint(3000, 5000))
        )
    partitions = tuple(_isolate(random) for _ in range(random.randint(2, 5)))
    return (
        *partitions,
        *(_restart(random, AT_THE_TRIGGER, _moment(random)) for _ in range(random.randint(1, 3))),
    )


def _isolate(random: "Random") -> Fault:
    return Fault(
        kind="partition", trigger=_moment(random), params={"duration_ms": random.randint(700, 2500)}
    )


def _moment(random: "Random") -> Trigger:
    """Draw a trigger at which a leader has committed one change and has written another."""
    if random.random() < 0.5:
        return OnEvent(
            kind="HighWatermarkMoved", fields={"is_leader": True}, nth=random.randint(5, 90)
        )
    return OnState(states=("leader", "appended-not-committed"), nth=random.randint(3, 60))


def _restart(random: "Random", target: str, trigger: Trigger) -> Fault:
    power_loss = not isinstance(trigger, AtTime)
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": power_loss, "after_ms": random.choice((20, 200, 1500))},
    )


def _draw_settings(random: "Random") -> dict[str, str]:
    """Draw how often snapshots are written, and how much of the log before them is kept."""
    return {
        "metadata.log.max.record.bytes.between.snapshots": random.choice(("500", "1500", "4000")),
        "metadata.log.segment.bytes": random.choice(("600", "2000", "6000")),
        "metadata.max.retention.bytes": random.choice(("2000", "8000")),
    }


SCENARIO = Scenario(
    name="admin_requests_during_controller_failover",
    summary="Administrators create topics and change configurations while quorum leaders fail; "
    "exactly the acknowledged changes persist.",
    must_exercise=(
        "one-leader-per-epoch",
        "metadata-log-matching",
        "leader-completeness",
        "snapshot-equals-log",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    controllers=3,
    brokers=2,
    settings={
        **QUICK_SESSIONS,
        **QUICKER_ELECTIONS,
        "controller.quorum.fetch.timeout.ms": "800",
    },
    draw_parameters=_draw_settings,
    fault_space=quorum_fault_space(
        controllers=3,
        brokers=2,
        clients=tuple(f"administrator-{number}" for number in range(1, 5)),
        apis=ADMINISTRATOR_APIS,
        fault_seconds=WORK_SECONDS,
        may_lose=(DataLoss.UNFLUSHED,),  # the class of the scenario's own faults
        mix=Mix.ON_TOP,
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
