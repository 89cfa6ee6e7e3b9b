"""Consumers read while followers are slow and leaders fail; checks that no consumer returns a
record above the high watermark.

A read_uncommitted consumer reads the whole topic again and again while producers write with
acks=all. Followers are slow, isolated or paused, so that the leader's log end offset is above its
high watermark most of the time; leaders are killed right after an append.
Source: KIP-98, KIP-207; kafka.cluster.Partition.readRecords.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnEvent, Value
from kraftsim.lab.faults.fault_space import READER_APIS
from kraftsim.lab.workloads.replication_workload import (
    MUST_EXERCISE,
    SETTINGS,
    TOPIC,
    WORKLOAD,
    ReplicationWorkload,
)
from kraftsim.lab.workloads.workload_spaces import replication_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

LEDGER = ReplicationWorkload(partitions=2)
BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 5.0
OVER_SOCKETS = ("clog", "partition")


async def run(stage: ScenarioEnvironment) -> None:
    """Produce and consume while followers fall behind and leaders fail, and read everything
    back.
    """
    await LEDGER.run(stage, _read(stage, stage.workload("work_ms") / 1000))


async def _read(stage: ScenarioEnvironment, seconds: float) -> None:
    """Read the topic from its beginning to its end again and again.

    What is read is checked from the events.
    """
    reader = stage.reader("reader-at-the-end")
    ends_at = stage.now_seconds() + seconds
    while stage.now_seconds() < ends_at:
        await reader.read_all(TOPIC, range(LEDGER.partitions))
        await stage.sleep(stage.workload("reads_every_ms") / 1000)
    await reader.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw two to four slow followers, and in simulation up to two kills of a leader right after an
    append.
    """
    schedule = [_slow(random, mode) for _ in range(random.randint(2, 4))]
    if mode is Mode.SIM:
        schedule += [_kill(random) for _ in range(random.randint(0, 2))]
    return tuple(schedule)


def _slow(random: "Random", mode: Mode) -> Fault:
    one, other = random.sample(BROKERS, 2)
    kind = random.choice((*OVER_SOCKETS, "pause") if mode is Mode.SIM else OVER_SOCKETS)
    trigger = AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000)))
    target = one if kind == "pause" else f"{one}{random.choice(('>', '<>'))}{other}"
    return Fault(
        kind=kind, target=target, trigger=trigger, params={"duration_ms": random.randint(500, 2500)}
    )


def _kill(random: "Random") -> Fault:
    params: dict[str, Value] = {"power_loss": False, "after_ms": random.randint(20, 2000)}
    trigger = OnEvent(kind="BatchAppended", nth=random.randint(1, 120))
    return Fault(kind="restart", target=AT_THE_TRIGGER, trigger=trigger, params=params)


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw replica.lag.time.max.ms."""
    return {"replica.lag.time.max.ms": str(random.choice((1000, 3000)))}


SCENARIO = Scenario(
    name="consumers_below_high_watermark",
    summary="Consumers read while followers are slow and leaders fail; no consumer returns a "
    "record above the high watermark.",
    must_exercise=(*MUST_EXERCISE, "reads-below-high-watermark"),
    run=run,
    faults=faults,
    draw_parameters=draw_parameters,
    settings=SETTINGS,
    fault_space=replication_fault_space(
        readers=("reader-at-the-end",), apis=READER_APIS, fault_seconds=WORK_SECONDS
    ),
    limit_seconds=600.0,
    workload={
        **WORKLOAD,
        "records_per_writer": 60,
        "work_ms": int(WORK_SECONDS * 1000),
        "reads_every_ms": 200,
    },
    fewest_controllers=1,
    fewest_brokers=3,
)
