"""A cluster is on its way from ZooKeeper to KRaft, and goes back: all that KRaft decided meanwhile is in ZooKeeper, producer ids included.

Brokers are taken over, one of them becomes a broker of KRaft; then it, and after it all of them, are restarted as brokers of ZooKeeper's time, and
the claim of the controllers is taken out of ZooKeeper. A controller may fail right after it has given a block of producer ids away, and before
ZooKeeper knows: the next one must tell it (KAFKA-15010), or a broker takes the same block from ZooKeeper in the end.
Source: KIP-866, the chapter on reverting of Kafka's documentation 3.9.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.migrating import ZOOKEEPER, Migration
from kraftsim.cluster.scenario import Mode, Scenario, Stage
from kraftsim.cluster.upgrading import Traffic, Upgrade
from kraftsim.events.runs import PhaseBegan
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault
from kraftsim.faults.trigger import OnEvent

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

TOPIC = "ledger"
PARTITIONS = 3
IDS_PER_RESTART = 20
IDS_IN_DUAL_WRITE = 4000
"""So many that every broker asks for another block while both are written."""
WHILE_IT_FAILS_SECONDS = 5.0


async def play(stage: Stage) -> None:
    """Go and come back with clients at work, and read what they wrote."""
    traffic = Traffic(topic=TOPIC, partitions=PARTITIONS)
    stage.note(PhaseBegan(phase=ZOOKEEPER))
    await traffic.open(stage)
    writers = [traffic.write(stage, f"writer-of-ledger-{number}") for number in range(1, stage.workload("writers") + 1)]
    await stage.gather(there_and_back(stage, traffic), *writers)
    await traffic.audit(stage)


async def there_and_back(stage: Stage, traffic: Traffic) -> None:
    """Go half of the way and back; then let those who write come to an end."""
    asker = stage.id_asker("asker")

    async def ask() -> None:
        await asker.ask(IDS_PER_RESTART)

    await ask()
    migration = Migration(stage=stage, upgrade=Upgrade(stage=stage, topics={TOPIC: PARTITIONS}, after_each=ask))
    await migration.take_over()
    stage.inject()
    await asker.ask(IDS_IN_DUAL_WRITE)
    await stage.sleep(WHILE_IT_FAILS_SECONDS)
    await stage.mend()
    await migration.upgrade.settled()
    await migration.compare()
    await migration.to_kraft(brokers=stage.workload("brokers_of_kraft"))
    await migration.go_back()
    await asker.ask(IDS_IN_DUAL_WRITE)
    await asker.close()
    traffic.is_over = True


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """In simulation let a controller fail when it has given a block away and not told ZooKeeper."""
    if mode is not Mode.SIM:
        return ()
    trigger = OnEvent(kind="ProducerIdBlockAllocated", nth=random.randint(1, 3))
    return (Fault(kind="restart", target=AT_THE_TRIGGER, trigger=trigger, params={"power_loss": False, "after_ms": random.randint(1000, 3000)}),)


SCENARIO = Scenario(
    name="rollback_from_migration",
    story="A cluster that is on its way to KRaft goes back to ZooKeeper, and nothing is lost or given away twice.",
    must_exercise=(
        "producer-id-unique",
        "producer-id-blocks-disjoint",
        "acknowledged-records-in-final-log",
        "one-append-per-sequence",
        "zookeeper-mirrors-log",
    ),
    play=play,
    faults=faults,
    controllers=3,
    brokers=3,
    zookeeper_mode=True,
    limit_seconds=3600.0,
    workload={"writers": 2, "pause_ms": 100, "brokers_of_kraft": 1, "crashes": 0, "pauses": 0},
    fewest_controllers=1,
    fewest_brokers=3,
)
