"""Migrates a cluster from ZooKeeper to KRaft under idempotent load, following the steps of Kafka's
documentation.

Brokers are restarted for migration; the KRaft controllers, which run from the beginning, copy the
metadata from ZooKeeper and then write to both (dual write); brokers are restarted as KRaft brokers;
the controllers finalize the migration. After each restart new clients request producer ids, so that
blocks allocated in ZooKeeper mode, in dual write and in KRaft mode are all in use; during dual
write, ZooKeeper is compared with the log.
Source: KIP-866, the migration chapter of Kafka's documentation 3.9.
"""

from kraftsim.lab.workloads.migration_scenarios import Move, migration_scenario


async def go(move: Move) -> None:
    """Run the whole migration."""
    migration, stage = move.migration, move.stage
    await move.load.ask()
    await migration.take_over()
    await stage.create_topic("made-meanwhile", 2, 3)
    await move.load.ask()
    await migration.compare()
    await migration.to_kraft()
    await migration.end()
    await move.load.ask()


SCENARIO = migration_scenario(
    name="zk_to_kraft_migration",
    summary="A cluster is migrated from ZooKeeper to KRaft, step by step; clients see retriable "
    "errors only.",
    go=go,
    steps_max=11,
    must_exercise=("metadata-log-matching",),
)
