"""Replicas of partitions without new records move between log directories while their leaders fail;
checks that every replica gets in sync, although no record is written any more.

Each failure of a leader begins a leader epoch, and here none of them has records. A replica that
led one asks the next leader for it, and that leader must know its epochs from before its replica
moved (KAFKA-20961: Apache Kafka up to 4.4.0 does not). On a busy partition the next record hides
that it does not.

Producers write a few records before the faults, and some partitions stay empty. An operator moves
the replicas of one broker or two. Brokers are paused, isolated and killed when they become leader,
when they follow, and when a move begins or ends; preferred leaders are elected now and then.
Source: KIP-101, KIP-113, KIP-279, KIP-858; KAFKA-20961, KAFKA-15608.
"""

from collections import Counter
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnEvent
from kraftsim.lab.faults.fault_space import (
    ALTER_REPLICA_LOG_DIRS,
    BROKERS,
    CLIENTS,
    ELECT_LEADERS,
    SEGMENT_FILES,
    Api,
    FaultMoment,
)
from kraftsim.lab.workloads.drawn_faults import Failures, drawn_time
from kraftsim.lab.workloads.partition_administrator import PartitionAdministrator
from kraftsim.lab.workloads.phases import elect_now_and_then, under_faults
from kraftsim.lab.workloads.replication_workload import (
    MUST_EXERCISE,
    SETTINGS,
    TOPIC,
    ReplicationWorkload,
)
from kraftsim.lab.workloads.workload_spaces import replication_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

LEDGER = ReplicationWorkload(partitions=6)
NAMES = ("broker-1", "broker-2", "broker-3")
DIRECTORIES = ("/data", "/data/second")
WORK_SECONDS = 10.0
ELECTION_SECONDS = 5.0
MOVE_SECONDS = 0.1
FAILURES = Failures(
    kinds=("restart", "stop", "pause", "pause", "partition", "partition"), duration_ms=(2000, 6000)
)
"""Pauses and partitions are drawn most: a broker that restarts forgets epochs without records."""
MOMENTS = (
    ("LeaderElected", 20),
    ("LeaderFollowed", 40),
    ("ReplicaMoveBegan", 60),
    ("ReplicaMoved", 60),
)
"""Events right after which a broker fails, and their approximate number per run."""


async def run(stage: ScenarioEnvironment) -> None:
    """Write, move the replicas under faults, heal, and wait until all of them are in sync."""
    await LEDGER.open(stage)
    await stage.gather(*(LEDGER.write(stage, number) for number in LEDGER.writers(stage)))
    seconds = stage.workload("work_ms") / 1000
    await under_faults(
        stage,
        _move(stage, stage.now_seconds() + seconds),
        elect_now_and_then(stage, seconds=seconds, every_seconds=ELECTION_SECONDS),
        seconds=seconds,
    )
    await LEDGER.audit(stage)


async def _move(stage: ScenarioEnvironment, over_at: float) -> None:
    """Move one replica after the other of a broker or two to its other log directory."""
    administrator = PartitionAdministrator(stage.client_host("administrator"))
    random = stage.random("administrator")
    brokers = random.sample(range(1, stage.spec.brokers + 1), random.randint(1, 2))
    move_counts: Counter[tuple[int, int]] = Counter()
    while stage.now_seconds() < over_at and stage.workload("moves"):
        await stage.sleep(random.uniform(0, 2 * MOVE_SECONDS))
        replica = random.choice(brokers), random.randrange(LEDGER.partitions)
        move_counts[replica] += 1
        path = DIRECTORIES[move_counts[replica] % len(DIRECTORIES)]
        await administrator.move_replica(replica[0], TOPIC, replica[1], path)
    administrator.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw six to twelve failures of brokers; over sockets restarts at random times."""
    if mode is not Mode.SIM:
        return tuple(
            FAILURES.draw(
                random, random.choice(NAMES), drawn_time(random, WORK_SECONDS), ("restart",)
            )
            for _ in range(random.randint(1, 3))
        )
    return tuple(_drawn(random) for _ in range(random.randint(6, 12)))


def _drawn(random: "Random") -> Fault:
    if random.random() < 0.4:
        kind, times = random.choice(MOMENTS)
        trigger = OnEvent(kind=kind, nth=random.randint(1, times))
        return FAILURES.draw(random, random.choice((AT_THE_TRIGGER, *NAMES)), trigger)
    return FAILURES.draw(random, random.choice(NAMES), drawn_time(random, WORK_SECONDS))


SCENARIO = Scenario(
    name="quiet_replicas_move",
    summary="Replicas of quiet partitions move between log directories while leaders fail; all of "
    "them get in sync again without a new record.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings={
        **SETTINGS,
        "kraftsim.release": "4.4",
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "300",
        "log.dirs": ",".join(DIRECTORIES),
    },
    controllers_drawn=(1, 3),
    fault_space=replication_fault_space(
        controllers=3,
        fault_seconds=WORK_SECONDS,
        readers=("administrator",),
        apis=(
            Api(ALTER_REPLICA_LOG_DIRS, CLIENTS, BROKERS, 80),
            Api(ELECT_LEADERS, CLIENTS, BROKERS, 6),
        ),
        files=SEGMENT_FILES,
        moments=(
            FaultMoment("ReplicaMoveBegan", BROKERS, 60),
            FaultMoment("ReplicaMoved", BROKERS, 60),
        ),
    ),
    limit_seconds=600.0,
    workload={
        "writers": 2,
        "records_per_writer": 3,
        "pause_ms": 20,
        "moves": 1,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
    since="3.9",
)
