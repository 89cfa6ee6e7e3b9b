"""A cluster goes from ZooKeeper to KRaft while idempotent writers work: the steps of Kafka's documentation, one after the other.

Brokers are restarted so that they can be taken over; controllers of KRaft, which are there from the beginning, copy what ZooKeeper has and write both
from then on; brokers are restarted as brokers of KRaft; controllers end it. After each restart new clients ask for producer ids, so that blocks of
ZooKeeper's time, of dual write and of KRaft are all in use; as long as both are written ZooKeeper is compared with the log.
Source: KIP-866, the migration chapter of Kafka's documentation 3.9.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.migrating import ZOOKEEPER, Migration
from kraftsim.cluster.scenario import Mode, Scenario, Stage
from kraftsim.cluster.upgrading import Traffic, Upgrade
from kraftsim.events.runs import PhaseBegan
from kraftsim.faults.fault import Fault

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

TOPIC = "ledger"
PARTITIONS = 3
IDS_PER_RESTART = 20


async def play(stage: Stage) -> None:
    """Migrate with clients at work, and read what they wrote."""
    traffic = Traffic(topic=TOPIC, partitions=PARTITIONS)
    stage.note(PhaseBegan(phase=ZOOKEEPER))
    await traffic.open(stage)
    writers = [traffic.write(stage, f"writer-of-ledger-{number}") for number in range(1, stage.workload("writers") + 1)]
    await stage.gather(move(stage, traffic), *writers)
    await traffic.audit(stage)


async def move(stage: Stage, traffic: Traffic) -> None:
    """Go all the way; then let those who write come to an end."""
    asker = stage.id_asker("asker")

    async def ask() -> None:
        await asker.ask(IDS_PER_RESTART)

    await ask()
    migration = Migration(stage=stage, upgrade=Upgrade(stage=stage, topics={TOPIC: PARTITIONS}, after_each=ask))
    await migration.take_over()
    await stage.create_topic("made-meanwhile", 2, 3)
    await ask()
    await migration.compare()
    await migration.to_kraft()
    await migration.end()
    await ask()
    await asker.close()
    traffic.is_over = True


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Restarts are enough."""
    return ()


SCENARIO = Scenario(
    name="zk_to_kraft_migration",
    story="A cluster goes from ZooKeeper to KRaft, step by step, and clients at work see nothing that does not pass by itself.",
    must_exercise=(
        "producer-id-unique",
        "producer-id-blocks-disjoint",
        "acknowledged-records-in-final-log",
        "one-append-per-sequence",
        "zookeeper-mirrors-log",
        "metadata-log-matching",
    ),
    play=play,
    faults=no_faults,
    controllers=3,
    brokers=3,
    zookeeper_mode=True,
    limit_seconds=3600.0,
    workload={"writers": 2, "pause_ms": 100, "crashes": 0, "pauses": 0},
    fewest_controllers=1,
    fewest_brokers=3,
)
