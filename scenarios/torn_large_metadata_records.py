"""Controllers lose power while they write metadata records of several kilobytes; checks that torn
records are truncated and acknowledged ones kept.

Administrators set long throttled-replica lists. A record longer than a disk sector may be written
partially: its start without its end, or both ends without the middle. Disks are slow and segments
small, so that several records are being written at once, and one may be missing that has others
after it. A restarted controller truncates torn records and everything after a gap; what was
acknowledged is there.

Over sockets controllers are killed at random times.
Source: KIP-73 (throttled replicas), KIP-595; Pillai et al., All File Systems Are Not Created Equal
(2014).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, within
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    LEADER_TARGET,
    AtTime,
    DataLoss,
    Fault,
    FileClass,
    OnDisk,
)
from kraftsim.lab.faults.fault_space import Mix
from kraftsim.lab.faults.quorum_spaces import ADMINISTRATOR_APIS, quorum_fault_space
from kraftsim.lab.workloads.administrator import Administrator
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import QUICK_SESSIONS, QUICKER_ELECTIONS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

CONTROLLERS = ("controller-101", "controller-102", "controller-103")
WORK_SECONDS = 4.0
WORK_MS = int(WORK_SECONDS * 1000)
WORKLOAD = {"administrators": 5, "changes_each": 14, "replicas_max": 500, "work_ms": WORK_MS}
THROTTLED = "leader.replication.throttled.replicas"
KNOWN_SECONDS = 20.0
LOOK_SECONDS = 0.1


async def run(stage: ScenarioEnvironment) -> None:
    """Change throttles under faults, heal, and check that every broker has the last acknowledged
    ones.
    """
    acknowledged: dict[str, str] = {}
    await stage.wait_for_leader()
    numbers = range(1, stage.workload("administrators") + 1)
    await under_faults(
        stage,
        *(_throttle(stage, number, acknowledged) for number in numbers),
        seconds=stage.workload("work_ms") / 1000,
    )
    looker = Administrator(stage.client_host("looker"))
    await within(
        stage,
        "brokers have the last acknowledged lists",
        _known(stage, looker, acknowledged),
        KNOWN_SECONDS,
    )
    looker.close()


async def _throttle(stage: ScenarioEnvironment, number: int, acknowledged: dict[str, str]) -> None:
    """Create a topic, and set longer and shorter lists for it."""
    name, topic = f"administrator-{number}", f"topic-{number}"
    administrator, random = Administrator(stage.client_host(name)), stage.random(name)
    most = max(1, stage.workload("replicas_max") // stage.random("most").choice((1, 1, 10)))
    await administrator.create_topic(topic)
    for _ in range(stage.workload("changes_each")):
        replicas = ",".join(f"{partition}:1" for partition in range(random.randint(1, most)))
        await administrator.configure(topic, {THROTTLED: replicas})
        acknowledged[topic] = replicas
    if topic in administrator.in_doubt:
        del acknowledged[topic]
    administrator.close()


async def _known(
    stage: ScenarioEnvironment, looker: Administrator, acknowledged: dict[str, str]
) -> None:
    for topic, replicas in acknowledged.items():
        while await looker.configured(1, topic, [THROTTLED]) != {THROTTLED: replicas}:
            await stage.sleep(LOOK_SECONDS)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw a schedule: over sockets kills; in simulation power losses while the metadata log is
    written, and one of the leader.
    """
    if mode is not Mode.SIM:
        return tuple(
            _killed(random.choice((*CONTROLLERS, LEADER_TARGET)), random.randint(300, WORK_MS))
            for _ in range(random.randint(2, 3))
        )
    slow: dict[str, int | str | bool | None] = {
        "factor": random.choice((20, 50, 100)),
        "duration_ms": WORK_MS,
    }
    schedule = [
        Fault(kind="slow-disk", target="controller-*", trigger=AtTime(at_ms=1), params=slow)
    ]
    return (
        *schedule,
        *(_torn(random) for _ in range(random.randint(3, 8))),
        _killed(LEADER_TARGET, WORK_MS // 2),
    )


def _torn(random: "Random") -> Fault:
    """Power fails right after a write, or before its flush: any of its sectors may be on disk."""
    operation, moment = random.choice((("write", "after"), ("flush", "before")))
    host, nth = random.choice(CONTROLLERS), random.randint(5, 90)
    trigger = OnDisk(
        operation=operation, file_class=FileClass.METADATA_LOG, host=host, nth=nth, moment=moment
    )
    after_ms = random.choice((20, 100, 400))
    if random.random() >= TORN_SHARE:
        return Fault(
            kind="restart",
            target=AT_THE_TRIGGER,
            trigger=trigger,
            params={"power_loss": True, "after_ms": after_ms},
        )
    shape = random.choice(("prefix", "holes", "holes", "zeros"))
    return Fault(
        kind="torn-write",
        target=AT_THE_TRIGGER,
        trigger=trigger,
        params={"shape": shape, "after_ms": after_ms},
    )


TORN_SHARE = 0.7


def _killed(target: str, at_ms: int) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=AtTime(at_ms=at_ms),
        params={"power_loss": False, "after_ms": 300},
    )


def _draw_settings(random: "Random") -> dict[str, str]:
    """Draw how large segments are, and how often snapshots are written."""
    return {
        "metadata.log.segment.bytes": random.choice(("150", "600", "8000")),
        "metadata.log.max.record.bytes.between.snapshots": random.choice(("8000", "1000000")),
        "controller.quorum.fetch.max.bytes": random.choice(("1", "8388608", "8388608")),
    }


SCENARIO = Scenario(
    name="torn_large_metadata_records",
    summary="Controllers lose power while they write records of several kilobytes; torn records "
    "are truncated, and acknowledged ones are kept.",
    must_exercise=(
        "one-leader-per-epoch",
        "metadata-log-matching",
        "metadata-log-contiguous",
        "high-watermark-flushed",
        "leader-completeness",
        "flushed-metadata-retained",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    controllers=3,
    brokers=1,
    settings={
        **QUICK_SESSIONS,
        **QUICKER_ELECTIONS,
        "metadata.max.idle.interval.ms": "100",
    },
    draw_parameters=_draw_settings,
    fault_space=quorum_fault_space(
        controllers=3,
        brokers=1,
        clients=tuple(f"administrator-{number}" for number in range(1, 6)),
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
