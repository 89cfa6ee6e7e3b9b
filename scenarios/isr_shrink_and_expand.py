"""Slows, isolates and pauses followers so that the ISR shrinks and expands; checks that the high
watermark never passes an in-sync replica.

Links between brokers are blocked, throttled and partitioned for about replica.lag.time.max.ms,
which is drawn as well. The ISR shrinks and expands again and again while producers write with
acks=all and min.insync.replicas=2. AlterPartition requests are late, lost or answered twice.
Source: KIP-497, KIP-966; kafka.cluster.Partition.{maybeShrinkIsr, maybeExpandIsr}.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    AtTime,
    Fault,
    OnEvent,
    OnFrame,
    Trigger,
    Value,
)
from kraftsim.lab.faults.fault_space import ALTER_PARTITION
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
WORK_SECONDS = 9.0
OVER_SOCKETS = ("clog", "partition", "bandwidth-cap")


async def run(stage: ScenarioEnvironment) -> None:
    """Produce while followers fall behind and catch up, and read everything back."""
    await LEDGER.run(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw three to seven follower faults, and in simulation up to three faults on
    AlterPartition.
    """
    schedule = [_slow(random, mode) for _ in range(random.randint(3, 7))]
    if mode is Mode.SIM:
        schedule += [_asked(random) for _ in range(random.randint(0, 3))]
    return tuple(schedule)


def _slow(random: "Random", mode: Mode) -> Fault:
    one, other = random.sample(BROKERS, 2)
    kind = random.choice((*OVER_SOCKETS, "pause") if mode is Mode.SIM else OVER_SOCKETS)
    params: dict[str, Value] = {"duration_ms": random.randint(500, 4000)}
    if kind == "bandwidth-cap":
        params["bytes_per_second"] = random.choice((500, 2000, 8000))
    trigger: Trigger = AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000)))
    if mode is Mode.SIM and random.random() < 0.4:
        trigger = OnEvent(
            kind=random.choice(("IsrChangeAsked", "IsrChanged")), nth=random.randint(1, 8)
        )
    return Fault(
        kind=kind,
        target=one if kind == "pause" else f"{one}{random.choice(('>', '<>'))}{other}",
        trigger=trigger,
        params=params,
    )


def _asked(random: "Random") -> Fault:
    kind, is_response = random.choice(
        (
            ("lost-reply", True),
            ("cut-connection", True),
            ("duplicate-request", False),
            ("restart", True),
        )
    )
    params: dict[str, Value] = {}
    if kind == "restart":  # the controller is killed while its response is in flight
        params = {"power_loss": False, "after_ms": random.randint(20, 1500)}
    trigger = OnFrame(
        api_key=ALTER_PARTITION, is_response=is_response, nth=random.randint(1, 6), moment="before"
    )
    return Fault(kind=kind, target=AT_THE_TRIGGER, trigger=trigger, params=params)


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw replica.lag.time.max.ms."""
    return {"replica.lag.time.max.ms": str(random.choice((500, 1000, 2000, 3000)))}


SCENARIO = Scenario(
    name="isr_shrink_and_expand",
    summary="Followers fall behind and catch up again and again; every acknowledged record is on "
    "all in-sync replicas.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    draw_parameters=draw_parameters,
    settings=SETTINGS,
    fault_space=replication_fault_space(fault_seconds=WORK_SECONDS),
    limit_seconds=600.0,
    workload={**WORKLOAD, "pause_ms": 60, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
