"""Fails partition leaders under idempotent producers with acks=all; checks that every acknowledged
record is on every replica exactly once.

Three brokers hold three replicas of each partition, with min.insync.replicas=2. Leaders are killed
right after an append, after an advance of the high watermark, or while an AlterPartition request is
in flight. Brokers are isolated from each other and from the controller, paused, and have clocks
that jump; Produce responses are lost, and preferred leaders are elected all the time. The cluster
has one or three controllers. In some runs unclean leader election is enabled: records that such a
leader did not have are excluded, and no others. Brokers lose power only in runs in which they flush
every batch: otherwise Kafka does not flush what it acknowledges, and two brokers of three that lose
unflushed data may lose an acknowledged record (broker_power_loss).
Source: KIP-98, KIP-101, KIP-106, KIP-279, KIP-320, KIP-497, KIP-966.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnEvent, OnFrame, Value
from kraftsim.lab.faults.fault_space import WRITER_APIS, cluster_fault_space
from kraftsim.lab.workloads.phases import elect_now_and_then, under_faults
from kraftsim.lab.workloads.replication_workload import (
    MUST_EXERCISE,
    SETTINGS,
    UNCLEAN,
    WORKLOAD,
    ReplicationWorkload,
)

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

LEDGER = ReplicationWorkload(partitions=4)
BROKERS = ("broker-1", "broker-2", "broker-3")
PRODUCE = 0
UNCLEAN_SHARE = 0.3
WORK_SECONDS = 8.0
ELECTION_SECONDS = 1.5
MOMENTS: tuple[tuple[str, int, dict[str, Value]], ...] = (
    ("BatchAppended", 200, {}),
    ("BatchReplicated", 400, {}),
    ("PartitionHighWatermarkMoved", 150, {"is_leader": True}),
    ("PartitionHighWatermarkMoved", 300, {"is_leader": False}),
    ("LeaderElected", 20, {}),
    ("IsrChangeAsked", 6, {}),
    ("IsrChanged", 6, {}),
    ("PartitionTruncated", 2, {}),
)
"""Events after which a broker failure is most revealing, and their approximate number per run."""


async def run(stage: ScenarioEnvironment) -> None:
    """Produce while leaders fail, heal, and read everything back; invariants are checked from the
    events.
    """
    await LEDGER.open(stage)
    seconds = stage.workload("work_ms") / 1000
    writers = (LEDGER.write(stage, number) for number in LEDGER.writers(stage))
    await under_faults(
        stage,
        *writers,
        elect_now_and_then(stage, seconds=seconds, every_seconds=ELECTION_SECONDS),
        seconds=seconds,
    )
    await LEDGER.audit(stage)
    await LEDGER.refuse_old_readers(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw three to eight faults; over sockets, without event triggers and clock faults, only timed
    ones.
    """
    if mode is not Mode.SIM:
        return tuple(_timed(random) for _ in range(random.randint(2, 3)))
    draws = (_kill, _kill, _kill, _timed, _timed, _lost, _clock)
    return tuple(random.choice(draws)(random) for _ in range(random.randint(3, 8)))


def _kill(random: "Random") -> Fault:
    """A broker is killed, paused or isolated right after an event."""
    kind, times_max, fields = random.choice(MOMENTS)
    trigger = OnEvent(kind=kind, nth=random.randint(1, times_max), fields=fields)
    return _fault(random, AT_THE_TRIGGER, trigger)


def _timed(random: "Random") -> Fault:
    return _fault(
        random, random.choice(BROKERS), AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000)))
    )


def _fault(random: "Random", target: str, trigger: AtTime | OnEvent) -> Fault:
    kind = random.choice(("restart", "restart", "stop", "pause", "partition"))
    if kind == "restart":
        return Fault(
            kind=kind,
            target=target,
            trigger=trigger,
            params={"power_loss": False, "after_ms": random.randint(20, 4000)},
        )
    if kind == "stop":
        return Fault(
            kind=kind, target=target, trigger=trigger, params={"after_ms": random.randint(20, 2000)}
        )
    if kind == "partition" and target != AT_THE_TRIGGER:
        other = random.choice([each for each in (*BROKERS, "controller-101") if each != target])
        target = f"{target}{random.choice(('>', '<>'))}{other}"
    return Fault(
        kind=kind, target=target, trigger=trigger, params={"duration_ms": random.randint(300, 6000)}
    )


def _lost(random: "Random") -> Fault:
    trigger = OnFrame(
        api_key=PRODUCE, is_response=True, nth=random.randint(1, 150), moment="before"
    )
    return Fault(
        kind=random.choice(("lost-reply", "cut-connection")), target=AT_THE_TRIGGER, trigger=trigger
    )


def _clock(random: "Random") -> Fault:
    params: dict[str, Value] = {
        "by_ms": random.choice((50, 3000, 3_600_000)),
        "duration_ms": random.randint(200, 5000),
    }
    kind = random.choice(("clock-jump-forward", "clock-jump-back"))
    return Fault(
        kind=kind,
        target=random.choice(BROKERS),
        trigger=AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000))),
        params=params,
    )


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw whether unclean leader election is enabled."""
    if random.random() < UNCLEAN_SHARE:
        return {
            UNCLEAN: "true",
            "unclean.leader.election.interval.ms": str(random.choice((200, 1000, 5000))),
        }
    return {}


SCENARIO = Scenario(
    name="partition_leader_failover_idempotent",
    summary="Partition leaders fail under idempotent producers; every acknowledged record is on "
    "every replica, exactly once.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    draw_parameters=draw_parameters,
    settings=SETTINGS,
    controllers_drawn=(1, 3),
    fault_space=cluster_fault_space(
        controllers=3,
        brokers=3,
        clients=("writer-1", "writer-2", "writer-3"),
        apis=WRITER_APIS,
        brokers_keep_records=True,
        brokers_may_flush=True,
        brokers_replicate=True,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
