"""Brokers that flush every batch before they respond lose power, alone or all at once; checks that
no acknowledged record is lost.

log.flush.interval.messages=1: a leader responds, and a follower fetches more, when what they wrote
is on their disks. The last in-sync replica may therefore lose power, too, and so may all three at
once, while links are partitioned and brokers are killed.
Source: KAFKA-4215; org.apache.kafka.storage.internals.log.UnifiedLog.append (flush.messages).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    AtTime,
    Fault,
    FileClass,
    OnDisk,
    OnEvent,
    Trigger,
)
from kraftsim.lab.workloads.phases import elect_now_and_then
from kraftsim.lab.workloads.replication_workload import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    ReplicationWorkload,
)
from kraftsim.lab.workloads.workload_spaces import replication_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

LEDGER = ReplicationWorkload(partitions=3)
BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 8.0
ELECTION_SECONDS = 1.5
BLACKOUT_SHARE = 0.4
MOMENTS = (
    ("BatchAppended", 150),
    ("BatchReplicated", 300),
    ("PartitionHighWatermarkMoved", 200),
    ("LeaderElected", 12),
    ("IsrChanged", 6),
)
"""Events right after which power may fail, and their approximate number per run."""


async def run(stage: ScenarioEnvironment) -> None:
    """Produce while power fails, and read everything back."""
    seconds = stage.workload("work_ms") / 1000
    await LEDGER.run(
        stage, elect_now_and_then(stage, seconds=seconds, every_seconds=ELECTION_SECONDS)
    )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw three to eight power losses, network partitions, and in some runs a power loss of all
    brokers; over sockets kills at random times.
    """
    if mode is not Mode.SIM:
        return tuple(
            _restart(random, random.choice(BROKERS), _time(random))
            for _ in range(random.randint(2, 3))
        )
    schedule = [_loss(random) for _ in range(random.randint(3, 8))]
    schedule += [_isolate(random) for _ in range(random.randint(0, 3))]
    if random.random() < BLACKOUT_SHARE:
        at = _time(random)
        schedule += [_restart(random, name, at) for name in BROKERS]
    return tuple(schedule)


def _loss(random: "Random") -> Fault:
    if random.random() < 0.5:
        kind, times = random.choice(MOMENTS)
        return _restart(random, AT_THE_TRIGGER, OnEvent(kind=kind, nth=random.randint(1, times)))
    operation, moment = random.choice(("write", "flush")), random.choice(("before", "after"))
    host = random.choice(BROKERS)
    trigger = OnDisk(
        operation=operation,
        file_class=FileClass.PARTITION_LOG,
        host=host,
        nth=random.randint(1, 200),
        moment=moment,
    )
    return _restart(random, host, trigger)


def _isolate(random: "Random") -> Fault:
    one, other = random.sample(BROKERS, 2)
    params = {"duration_ms": random.randint(300, 5000)}
    return Fault(
        kind="partition",
        target=f"{one}{random.choice(('>', '<>'))}{other}",
        trigger=_time(random),
        params=params,
    )


def _time(random: "Random") -> AtTime:
    return AtTime(at_ms=random.randint(200, int(WORK_SECONDS * 1000)))


def _restart(random: "Random", target: str, trigger: Trigger) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": True, "after_ms": random.choice((20, 200, 1000, 3000))},
    )


SCENARIO = Scenario(
    name="broker_power_loss_flush_every_batch",
    summary="Brokers flush before they respond and lose power, also all at once; no acknowledged "
    "record is lost.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings={**SETTINGS, "log.flush.interval.messages": "1"},
    controllers_drawn=(1, 3),
    fault_space=replication_fault_space(controllers=3, fault_seconds=WORK_SECONDS),
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
