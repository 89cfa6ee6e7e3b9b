"""A controller that comes to lead in dual write passes on what changes from then on, and does not look at what was not passed on before.

ZooKeeper lacks it until it changes again. Who goes back from there takes producer ids that KRaft has given away.
Source: KAFKA-15010, org.apache.kafka.metadata.migration.KRaftMigrationDriver before SYNC_KRAFT_TO_ZK.
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.migration.driver import DriverEffect, InStep, MigrationDriver


class ComparesNothing(MigrationDriver):
    """Believes that ZooKeeper is in step."""

    def on_sync_due(self) -> list[DriverEffect]:
        return self.step(InStep(self.claim))  # right: write what differs first


BUG = Bug(
    name="KAFKA-15010",
    title="a new controller does not write to ZooKeeper what the one before could not",
    fixed_in=("3.5.0",),
    swap=lambda parts: parts.replacing(migration_driver=ComparesNothing),
    story="controller_failover_during_migration",
    caught_by=("zookeeper-mirrors-log", "producer-id-unique", "producer-id-blocks-disjoint"),
)
