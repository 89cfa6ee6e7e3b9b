"""The migration to KRaft records the start of the last block of producer ids as the next free id.

The first AllocateProducerIds in KRaft returns the ids of a block that a broker obtained from
ZooKeeper and still assigns to producers.
Source: KAFKA-15552, kafka.zk.ZkMigrationClient.migrateProducerId.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.migration.zookeeper_copy import ZookeeperCopy
from kraftsim.producer_ids.rules_blocks import ProducerIdBlock


class MigratesStartOfBlock(ZookeeperCopy):
    """Takes the first id of the block in ZooKeeper as the first free id."""

    def next_producer_id(self, block: ProducerIdBlock) -> int:
        return block.first_producer_id  # right: block.next_producer_id


BUG = Bug(
    name="KAFKA-15552",
    title="a migration to KRaft allocates the last block of producer ids again",
    fixed_in=("3.5.2", "3.6.1", "3.7.0"),
    swap=lambda parts: parts.replacing(zookeeper_copy=MigratesStartOfBlock),
    scenario="zk_to_kraft_migration",
    caught_by=("producer-id-blocks-disjoint", "producer-id-unique", "next-producer-id-monotonic"),
)
