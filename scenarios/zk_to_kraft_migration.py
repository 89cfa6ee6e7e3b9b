"""A cluster goes from ZooKeeper to KRaft while idempotent writers work: the steps of Kafka's documentation, one after the other.

Brokers are restarted so that they can be taken over; controllers of KRaft, which are there from the beginning, copy what ZooKeeper has and write both
from then on; brokers are restarted as brokers of KRaft; controllers end it. After each restart new clients ask for producer ids, so that blocks of
ZooKeeper's time, of dual write and of KRaft are all in use; as long as both are written ZooKeeper is compared with the log.
Source: KIP-866, the migration chapter of Kafka's documentation 3.9.
"""

from kraftsim.cluster.migration_story import Move, migration_story


async def go(move: Move) -> None:
    """Go all the way."""
    migration, stage = move.migration, move.stage
    await move.ask()
    await migration.take_over()
    await stage.create_topic("made-meanwhile", 2, 3)
    await move.ask()
    await migration.compare()
    await migration.to_kraft()
    await migration.end()
    await move.ask()


SCENARIO = migration_story(
    name="zk_to_kraft_migration",
    story="A cluster goes from ZooKeeper to KRaft, step by step, and clients at work see nothing that does not pass by itself.",
    go=go,
    must_exercise=("metadata-log-matching",),
)
