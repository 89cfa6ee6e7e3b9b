"""The copy of a migration says that the last block of producer ids is the next one.

Whoever asks KRaft first is given the ids that a broker got from ZooKeeper and gives to its producers.
Source: KAFKA-15552, kafka.zk.ZkMigrationClient.migrateProducerId.
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.producer_ids.block import ProducerIdBlock
from kraftsim.node.controller.migration.copying import ZookeeperCopy


class CopiesTheStart(ZookeeperCopy):
    """Takes the first id of the block in ZooKeeper for the first one that is free."""

    def next_producer_id(self, block: ProducerIdBlock) -> int:
        return block.first_producer_id  # right: block.next_producer_id


BUG = Bug(
    name="KAFKA-15552",
    title="a migration to KRaft gives the last block of producer ids away again",
    fixed_in=("3.5.2", "3.6.1", "3.7.0"),
    swap=lambda parts: parts.replacing(zookeeper_copy=CopiesTheStart),
    story="zk_to_kraft_migration",
    caught_by=("producer-id-blocks-disjoint", "producer-id-unique", "metadata-log-monotonic"),
)
