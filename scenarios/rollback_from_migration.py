"""A cluster is on its way from ZooKeeper to KRaft, and goes back: all that KRaft decided meanwhile is in ZooKeeper, producer ids included.

Brokers are taken over, one of them becomes a broker of KRaft; then it, and after it all of them, are restarted as brokers of ZooKeeper's time, and
the claim of the controllers is taken out of ZooKeeper. A controller may fail right after it has given a block of producer ids away, and before
ZooKeeper knows: the next one must tell it (KAFKA-15010), or a broker takes the same block from ZooKeeper in the end.
Source: KIP-866, the chapter on reverting of Kafka's documentation 3.9.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.migration_story import Move, migration_story
from kraftsim.cluster.scenario import Mode
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault
from kraftsim.faults.trigger import OnEvent

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

IDS_IN_DUAL_WRITE = 2800
"""So many that every broker asks for another block while both are written: it does so when nine tenths of one are used."""
IDS_AFTERWARDS = 900
WHILE_IT_FAILS_SECONDS = 5.0


async def go(move: Move) -> None:
    """Go half of the way and back."""
    migration, stage = move.migration, move.stage
    await move.ask()
    await migration.take_over()
    stage.inject()
    await move.asker.ask(IDS_IN_DUAL_WRITE)
    await stage.sleep(WHILE_IT_FAILS_SECONDS)
    await stage.mend()
    await migration.upgrade.settled()
    await migration.compare()
    await migration.to_kraft(brokers=stage.workload("brokers_of_kraft"))
    await migration.go_back()
    await move.asker.ask(IDS_AFTERWARDS)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """In simulation let a controller fail when it has given a block away and not told ZooKeeper."""
    if mode is not Mode.SIM:
        return ()
    trigger = OnEvent(kind="ProducerIdBlockAllocated", nth=random.randint(1, 3))
    return (Fault(kind="restart", target=AT_THE_TRIGGER, trigger=trigger, params={"power_loss": False, "after_ms": random.randint(1000, 3000)}),)


SCENARIO = migration_story(
    name="rollback_from_migration",
    story="A cluster that is on its way to KRaft goes back to ZooKeeper, and nothing is lost or given away twice.",
    go=go,
    faults=faults,
    workload={"brokers_of_kraft": 1},
)
