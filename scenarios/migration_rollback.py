"""Rolls a ZooKeeper-to-KRaft migration back; checks that ZooKeeper has all that KRaft decided
meanwhile, including producer-id blocks.

The KRaft controllers take over, and one broker becomes a KRaft broker; then it, and after it all
brokers, are restarted in ZooKeeper mode, and the controllers' znode /controller is deleted. A
controller may fail right after it has allocated a producer-id block, and before it is in ZooKeeper:
the next controller must write it (KAFKA-15010), or a broker allocates the same block from ZooKeeper
later.
Source: KIP-866, the chapter on reverting of Kafka's documentation 3.9.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnEvent
from kraftsim.lab.faults.fault_space import Mix
from kraftsim.lab.workloads.migration_scenarios import Move, migration_scenario

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

ASKED = 2
"""How many brokers request another block during dual write, at about the same time."""
IDS_IN_DUAL_WRITE = 920
"""The number of ids per broker: a broker requests a block when 90 % of the previous one is used."""
IDS_AFTERWARDS = 90
WHILE_IT_FAILS_SECONDS = 5.0


async def go(move: Move) -> None:
    """Run half of the migration, and roll it back."""
    migration, stage = move.migration, move.stage
    await move.load.ask()
    await migration.take_over()
    move.load.course.inject()
    await use_up_blocks(move)
    await stage.sleep(WHILE_IT_FAILS_SECONDS)
    await move.load.course.heal()
    await migration.upgrade.settled()
    await migration.compare()
    await migration.to_kraft(brokers=stage.workload("brokers_of_kraft"))
    await migration.go_back()
    await move.load.ask(IDS_AFTERWARDS)


async def use_up_blocks(move: Move) -> None:
    """Let clients of some brokers request so many ids that these brokers need another block."""
    stage, course = move.stage, move.load.course
    names = stage.random("askers").sample(stage.spec.broker_names, ASKED)
    clients = [stage.producer_id_client(f"asker-of-{name}", broker=name) for name in names]
    await stage.gather(*(course.ask(client, IDS_IN_DUAL_WRITE) for client in clients))
    for client in clients:
        await client.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """In simulation a controller fails when it has allocated a block and not yet written it to
    ZooKeeper.
    """
    if mode is not Mode.SIM:
        return ()
    trigger = OnEvent(kind="ProducerIdBlockAllocated", nth=random.randint(1, ASKED))
    return (
        Fault(
            kind="restart",
            target=AT_THE_TRIGGER,
            trigger=trigger,
            params={"power_loss": False, "after_ms": random.randint(1000, 3000)},
        ),
    )


SCENARIO = migration_scenario(
    name="migration_rollback",
    summary="A migration to KRaft is rolled back to ZooKeeper; nothing is lost, and no producer-id "
    "block is allocated twice.",
    go=go,
    steps_max=0,
    mix=Mix.ON_TOP,
    faults=faults,
    workload={"brokers_of_kraft": 1},
)
