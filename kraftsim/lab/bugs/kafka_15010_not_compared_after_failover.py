"""A new active controller in dual-write mode writes later changes to ZooKeeper, but not those that
its predecessor failed to write.

ZooKeeper lacks them until they change again. After a rollback to ZooKeeper, brokers obtain producer
ids that KRaft has already allocated.
Source: KAFKA-15010, org.apache.kafka.metadata.migration.KRaftMigrationDriver before
SYNC_KRAFT_TO_ZK.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.migration.rules_driver import DriverEffect, InStep, MigrationDriver


class ComparesNothing(MigrationDriver):
    """Assumes that ZooKeeper is up to date."""

    def on_sync_due(self) -> list[DriverEffect]:
        return self.step(InStep(self.claim))  # right: write what differs first


BUG = Bug(
    name="KAFKA-15010",
    title="a new controller does not write to ZooKeeper what its predecessor failed to write",
    fixed_in=("3.5.0",),
    swap=lambda parts: parts.replacing(migration_driver=ComparesNothing),
    scenario="controller_failover_during_migration",
    caught_by=("zookeeper-mirrors-log", "producer-id-unique", "producer-id-blocks-disjoint"),
)
