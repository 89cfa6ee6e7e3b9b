"""One broker of three loses power repeatedly with acks=all; checks that acknowledged records
survive although nothing was flushed.

Kafka acknowledges records that are on two brokers and flushed on none. That is safe as long as a
minority loses its unflushed records: here it is always the same broker, in the middle of a write,
right after it became leader, or while it recovers; the others are slow at times and lose responses,
and are never down. Kafka does not guarantee more: a broker that is the only in-sync replica and
loses power loses records that the others have, and an operator who lets a majority lose power
together must flush (broker_power_loss_flush_every_batch). So brokers do in runs with random faults
on top, in which the others fail as well.
Source: KIP-966 (motivation), KAFKA-4215; org.apache.kafka.storage.internals.log.LogConfig
(flush.messages).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AtTime, Fault, FileClass, OnDisk, OnEvent, Trigger
from kraftsim.lab.workloads.drawn_faults import lost_produce_response
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

LEDGER = ReplicationWorkload(partitions=4)
BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 8.0
ELECTION_SECONDS = 1.0
MOMENTS = (
    *(("BatchAppended", 120), ("BatchReplicated", 200), ("PartitionTruncated", 3)),
    *(("LeaderElected", 8), ("LeaderFollowed", 12), ("IsrChanged", 6)),
)
"""Events of the broker right after which its power fails, and their approximate number per run."""


async def run(stage: ScenarioEnvironment) -> None:
    """Produce while power fails, let the broker lead again whenever possible, and read everything
    back.
    """
    seconds = stage.workload("work_ms") / 1000
    await LEDGER.run(
        stage, elect_now_and_then(stage, seconds=seconds, every_seconds=ELECTION_SECONDS)
    )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw the broker, two to six power losses, and some lost responses; over sockets it is killed
    instead, at random times.
    """
    victim = random.choice(BROKERS)
    losses = tuple(
        _loss(random, victim, _moment(random, victim, mode)) for _ in range(random.randint(2, 6))
    )
    if mode is not Mode.SIM:
        return losses[:3]
    return (*losses, *(lost_produce_response(random) for _ in range(random.randint(0, 6))))


def _moment(random: "Random", victim: str, mode: Mode) -> Trigger:
    if mode is not Mode.SIM or random.random() < 0.2:
        return AtTime(at_ms=random.randint(200, int(WORK_SECONDS * 1000)))
    if random.random() < 0.5:
        kind, times = random.choice(MOMENTS)
        return OnEvent(kind=kind, host=victim, nth=random.randint(1, times))
    moment = random.choice(("before", "after"))
    return OnDisk(
        operation="write",
        file_class=FileClass.PARTITION_LOG,
        host=victim,
        nth=random.randint(1, 200),
        moment=moment,
    )


def _loss(random: "Random", victim: str, trigger: Trigger) -> Fault:
    return Fault(
        kind="restart",
        target=victim,
        trigger=trigger,
        params={"power_loss": True, "after_ms": random.choice((20, 200, 1000, 4000))},
    )


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw how often a broker writes its recovery point, and its segment size: a rolled segment is
    flushed.
    """
    return {
        "log.segment.bytes": random.choice(("2000", "20000", "1073741824")),
        "log.flush.offset.checkpoint.interval.ms": random.choice(("100", "2000", "60000")),
        "replica.high.watermark.checkpoint.interval.ms": random.choice(("100", "5000")),
    }


SCENARIO = Scenario(
    name="broker_power_loss",
    summary="One broker of three loses power again and again; records acknowledged by two brokers "
    "survive, flushed or not.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    draw_parameters=draw_parameters,
    settings={**SETTINGS, "replica.lag.time.max.ms": "30000"},
    controllers_drawn=(1, 3),
    fault_space=replication_fault_space(controllers=3, fault_seconds=WORK_SECONDS),
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
