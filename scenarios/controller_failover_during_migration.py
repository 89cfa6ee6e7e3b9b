"""Fails controllers at every step of a ZooKeeper-to-KRaft migration; checks that the next
controller resumes from the log and ZooKeeper.

In simulation the controller that drives the migration is killed when it has claimed /controller,
during the copy, between the end of the copy and its migration state in ZooKeeper, while it
compares, and when it has decided something that is not yet in ZooKeeper. ZooKeeper itself is
unavailable for a while, too, mostly when /controller is about to be claimed. The next controller
reverts an incomplete copy in the log, and writes to ZooKeeper what is missing there. Before 3.6 the
copy was not a metadata transaction: the next controller found an incomplete copy in the log, and
halted.
Source: KIP-866, KAFKA-15010, KAFKA-16171, KAFKA-17457.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnEvent, Trigger
from kraftsim.lab.faults.fault_space import Mix
from kraftsim.lab.workloads.migration_scenarios import Move, migration_scenario
from kraftsim.lab.workloads.quorum_scenarios import QUICK_ELECTIONS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

CONTROLLERS = ("controller-101", "controller-102", "controller-103")
FAULT_SECONDS = 20.0
"""Longer than brokers take to restart and controllers to take over; healed before, if they do."""
STATES = (
    "BECOME_CONTROLLER",
    "ZK_MIGRATION",
    "SYNC_KRAFT_TO_ZK",
    "KRAFT_CONTROLLER_TO_BROKER_COMM",
    "DUAL_WRITE",
)


async def go(move: Move) -> None:
    """Migrate under faults, heal, and complete the migration."""
    migration, stage = move.migration, move.stage
    await move.load.ask()
    move.load.course.inject()
    await stage.gather(*_asking_meanwhile(move, migration.take_over()))
    for number in range(stage.workload("topics")):
        await stage.create_topic(f"made-meanwhile-{number}", 1, 3)
        await move.load.ask(stage.workload("ids_per_topic"))
    await move.load.course.heal()
    await migration.upgrade.settled()
    await migration.taken_over()
    await migration.to_kraft()
    await migration.end()
    await move.load.ask()


def _asking_meanwhile(
    move: Move, take_over: Coroutine[object, object, None]
) -> tuple[Coroutine[object, object, None], ...]:
    """Return a migration step, and a client that requests ids until it ends: each restarted broker
    requests a block at once.
    """
    stage, is_over = move.stage, False

    async def taken_over() -> None:
        nonlocal is_over
        try:
            await take_over
        finally:
            is_over = True

    async def ask() -> None:
        client = stage.producer_id_client("impatient")
        while not is_over:
            await move.load.course.ask(client, 1)
            await stage.sleep(stage.workload("pause_ms") / 5000)
        await client.close()

    return taken_over(), ask()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw one to three controller failures at steps of a migration (over sockets: at times), and
    perhaps a ZooKeeper outage.

    Nearly half of the schedules are a ZooKeeper outage alone, at the step with the most operations
    in progress.
    """
    if mode is not Mode.SIM:
        return tuple(
            _end(random, random.choice(CONTROLLERS), AtTime(at_ms=random.randint(1000, 20_000)))
            for _ in range(2)
        )
    schedule = [_end(random, AT_THE_TRIGGER, _step(random)) for _ in range(random.randint(1, 3))]
    if random.random() < 0.3:
        schedule.append(
            _end(
                random,
                "zookeeper-1",
                OnEvent(kind="MigrationDriverMoved", fields={"to_state": random.choice(STATES)}),
            )
        )
    return random.choices((tuple(schedule), _absent_at_the_claim(random)), (55, 45))[0]


def _absent_at_the_claim(random: "Random") -> tuple[Fault, ...]:
    """ZooKeeper is unavailable as a KRaft controller is about to claim /controller.

    When it returns, the old and the new controller connect at the same time, each with pending
    operations.
    """
    about_to_claim = OnEvent(kind="MigrationDriverMoved", fields={"to_state": STATES[0]})
    params = {"power_loss": False, "after_ms": random.randint(200, 1500)}
    return (Fault(kind="restart", target="zookeeper-1", trigger=about_to_claim, params=params),)


def _step(random: "Random") -> Trigger:
    """Draw a step: a new state, a claim, a batch of the copy, its end, a comparison, a decision
    that is not yet in ZooKeeper.
    """
    return random.choice(
        (
            OnEvent(
                kind="MigrationDriverMoved",
                fields={"to_state": random.choice(STATES)},
                nth=random.randint(1, 2),
            ),
            OnEvent(kind="ZookeeperControllerClaimed", nth=random.randint(1, 2)),
            OnEvent(kind="MetadataAppended", fields={"record_kinds": "BeginTransactionRecord"}),
            OnEvent(
                kind="MetadataAppended",
                fields={"record_kinds": "ZkMigrationStateRecord,EndTransactionRecord"},
            ),
            OnEvent(kind="MigrationPieceCopied"),
            OnEvent(kind="ZookeeperMetadataCopied"),
            OnEvent(kind="ZnodesMirrored", nth=random.randint(1, 4)),
            OnEvent(
                kind="MetadataAppended",
                fields={"record_kinds": "TopicRecord,PartitionRecord"},
                nth=random.randint(1, 3),
            ),
            OnEvent(kind="ProducerIdBlockAllocated", nth=random.randint(1, 3)),
            OnEvent(
                kind="HighWatermarkMoved", fields={"is_leader": True}, nth=random.randint(10, 60)
            ),
        )
    )


def _end(random: "Random", target: str, trigger: Trigger) -> Fault:
    """Draw a failure.

    A broker, which may be the controller, loses no written data: Kafka does not guarantee unflushed
    records.
    """
    is_lost = (
        isinstance(trigger, OnEvent)
        and random.random() < 0.4
        and trigger.kind != "ProducerIdBlockAllocated"
    )
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": is_lost, "after_ms": random.randint(200, 2500)},
    )


SCENARIO = migration_scenario(
    name="controller_failover_during_migration",
    summary="Controllers fail at every step of a migration from ZooKeeper to KRaft, and the next "
    "controller resumes it.",
    go=go,
    steps_max=0,
    mix=Mix.ON_TOP,
    fault_seconds=FAULT_SECONDS,
    faults=faults,
    must_exercise=("metadata-log-matching", "snapshot-equals-log"),
    settings={**QUICK_ELECTIONS, "metadata.log.max.record.bytes.between.snapshots": "500"},
    workload={"topics": 3, "ids_per_topic": 120},
    since="3.6",
)
