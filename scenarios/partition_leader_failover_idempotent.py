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
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnEvent, Value
from kraftsim.lab.faults.fault_space import Mix
from kraftsim.lab.workloads.drawn_faults import (
    Failures,
    clock_jump,
    drawn_time,
    lost_produce_response,
    peers_of,
)
from kraftsim.lab.workloads.phases import elect_now_and_then
from kraftsim.lab.workloads.replication_workload import (
    MUST_EXERCISE,
    SETTINGS,
    UNCLEAN,
    WORKLOAD,
    ReplicationWorkload,
)
from kraftsim.lab.workloads.workload_spaces import replication_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

LEDGER = ReplicationWorkload(partitions=4)
BROKERS = ("broker-1", "broker-2", "broker-3")
FAILURES = Failures(peers=peers_of(BROKERS), duration_ms=(300, 6000))
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
    seconds = stage.workload("work_ms") / 1000
    await LEDGER.run(
        stage, elect_now_and_then(stage, seconds=seconds, every_seconds=ELECTION_SECONDS)
    )
    await LEDGER.refuse_old_readers(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw three to eight faults; over sockets, without event triggers and clock faults, only timed
    ones.
    """
    if mode is not Mode.SIM:
        return tuple(_timed(random) for _ in range(random.randint(2, 3)))
    draws = (_kill, _kill, _kill, _timed, _timed, lost_produce_response, _clock)
    return tuple(random.choice(draws)(random) for _ in range(random.randint(3, 8)))


def _kill(random: "Random") -> Fault:
    """A broker is killed, paused or isolated right after an event."""
    kind, times_max, fields = random.choice(MOMENTS)
    trigger = OnEvent(kind=kind, nth=random.randint(1, times_max), fields=fields)
    return FAILURES.draw(random, AT_THE_TRIGGER, trigger)


def _timed(random: "Random") -> Fault:
    return FAILURES.draw(
        random, random.choice(BROKERS), drawn_time(random, WORK_SECONDS, from_ms=100)
    )


def _clock(random: "Random") -> Fault:
    return clock_jump(random, BROKERS, WORK_SECONDS)


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
    fault_space=replication_fault_space(controllers=3, mix=Mix.EITHER, fault_seconds=WORK_SECONDS),
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
