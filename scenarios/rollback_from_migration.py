"""A cluster is on its way from ZooKeeper to KRaft, and goes back: all that KRaft decided meanwhile is in ZooKeeper, producer ids included.

Brokers are taken over, one of them becomes a broker of KRaft; then it, and after it all of them, are restarted as brokers of ZooKeeper's time, and
the claim of the controllers is taken out of ZooKeeper. A controller may fail right after it has given a block of producer ids away, and before
ZooKeeper knows: the next one must tell it (KAFKA-15010), or a broker takes the same block from ZooKeeper in the end.
Source: KIP-866, the chapter on reverting of Kafka's documentation 3.9.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.migration_story import Move, migration_story
from kraftsim.cluster.scenario import Mode, Stage
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault
from kraftsim.faults.trigger import OnEvent

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

ASKED = 2
"""How many brokers ask for another block while both are written, at about the same time."""
IDS_IN_DUAL_WRITE = 920
"""So many of each: a broker asks when nine tenths of a block are used."""
IDS_AFTERWARDS = 90
WHILE_IT_FAILS_SECONDS = 5.0


async def go(move: Move) -> None:
    """Go half of the way and back."""
    migration, stage = move.migration, move.stage
    await move.ask()
    await migration.take_over()
    stage.inject()
    await use_up_blocks(stage)
    await stage.sleep(WHILE_IT_FAILS_SECONDS)
    await stage.mend()
    await migration.upgrade.settled()
    await migration.compare()
    await migration.to_kraft(brokers=stage.workload("brokers_of_kraft"))
    await migration.go_back()
    await move.asker.ask(IDS_AFTERWARDS)


async def use_up_blocks(stage: Stage) -> None:
    """Let clients of some brokers ask for so many ids that these need another block."""
    names = stage.random("askers").sample(stage.spec.broker_names, ASKED)
    askers = [stage.id_asker(f"asker-of-{name}", broker=name) for name in names]
    await stage.gather(*(asker.ask(IDS_IN_DUAL_WRITE) for asker in askers))
    for asker in askers:
        await asker.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """In simulation let a controller fail when it has given a block away and not told ZooKeeper."""
    if mode is not Mode.SIM:
        return ()
    trigger = OnEvent(kind="ProducerIdBlockAllocated", nth=random.randint(1, ASKED))
    return (Fault(kind="restart", target=AT_THE_TRIGGER, trigger=trigger, params={"power_loss": False, "after_ms": random.randint(1000, 3000)}),)


SCENARIO = migration_story(
    name="rollback_from_migration",
    story="A cluster that is on its way to KRaft goes back to ZooKeeper, and nothing is lost or given away twice.",
    go=go,
    faults=faults,
    workload={"brokers_of_kraft": 1},
)
