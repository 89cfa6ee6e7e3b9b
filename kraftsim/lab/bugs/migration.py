"""Bugs of the migration from ZooKeeper to KRaft.

Two stores of metadata, and two kinds of controller, are in use one after the other and for a while
together. What was written to only one of them, in part or by a controller that had been replaced,
is lost or is allocated again.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.migration.rules_driver import DriverEffect, InStep, MigrationDriver
from kraftsim.migration.zookeeper_side import ZookeeperCopy
from kraftsim.producer_ids.rules_allocation import ProducerIdBlock
from kraftsim.producer_ids.zookeeper import Blocks, ControllerBlocks
from kraftsim.zookeeper.rules_received_metadata import ReceivedMetadata

KAFKA_15010 = Bug(
    name="KAFKA-15010",
    title="a new controller does not write to ZooKeeper what its predecessor failed to write",
    about="""A new active controller in dual-write mode writes later changes to ZooKeeper, but
        not those that its predecessor failed to write.

        ZooKeeper lacks them until they change again. After a rollback to ZooKeeper, brokers obtain
        producer ids that KRaft has already allocated.

        Source: KAFKA-15010, org.apache.kafka.metadata.migration.KRaftMigrationDriver before
        SYNC_KRAFT_TO_ZK.
        """,
    fixed_in=("3.5.0",),
    swap=lambda parts: parts.replacing(migration_driver=ComparesNothing),
    scenario="controller_failover_during_migration",
    caught_by=("zookeeper-mirrors-log", "producer-id-unique", "producer-id-blocks-disjoint"),
)


class ComparesNothing(MigrationDriver):
    """Assumes that ZooKeeper is up to date."""

    def on_sync_due(self) -> list[DriverEffect]:
        return self.step(InStep(self.claim))  # right: write what differs first


KAFKA_15109 = Bug(
    name="KAFKA-15109",
    title="migrating brokers ignore ISR changes in the same leader epoch",
    about="""Brokers in ZooKeeper mode ignore LeaderAndIsr of a KRaft controller, unless the
        leader epoch has changed.

        A KRaft controller changes the in-sync replicas, or the directory of a replica, under the
        same leader epoch: from then on the leader sends an old partition epoch and is rejected for
        ever. Restarted replicas never get in sync.

        Source: KAFKA-15109, kafka.server.ReplicaManager.becomeLeaderOrFollower.
        """,
    fixed_in=("3.5.1", "3.6.0"),
    swap=lambda parts: parts.replacing(received_metadata=WantsAnotherEpoch),
    scenario="zk_to_kraft_migration",
    caught_by=("recovers-after-heal",),
)


class WantsAnotherEpoch(ReceivedMetadata):
    """Processes requests of a KRaft controller as if they came from a ZooKeeper-mode controller."""

    def takes_same_epoch(self, *, is_kraft: bool) -> bool:
        return False  # right: from a controller of KRaft it does


KAFKA_15552 = Bug(
    name="KAFKA-15552",
    title="a migration to KRaft allocates the last block of producer ids again",
    about="""The migration to KRaft records the start of the last block of producer ids as the
        next free id.

        The first AllocateProducerIds in KRaft returns the ids of a block that a broker obtained
        from ZooKeeper and still assigns to producers.

        Source: KAFKA-15552, kafka.zk.ZkMigrationClient.migrateProducerId.
        """,
    fixed_in=("3.5.2", "3.6.1", "3.7.0"),
    swap=lambda parts: parts.replacing(zookeeper_copy=MigratesStartOfBlock),
    scenario="zk_to_kraft_migration",
    caught_by=("producer-id-blocks-disjoint", "producer-id-unique", "next-producer-id-monotonic"),
)


class MigratesStartOfBlock(ZookeeperCopy):
    """Takes the first id of the block in ZooKeeper as the first free id."""

    def next_producer_id(self, block: ProducerIdBlock) -> int:
        return block.first_producer_id  # right: block.next_producer_id


KAFKA_17457 = Bug(
    name="KAFKA-17457",
    title="a controller that fails during the migration leaves a partial migration",
    about="""A migration is written record by record, and brokers see each at once; if the
        controller fails in between, the next one starts over.

        Then the records of the first attempt are in the log twice: a controller that replays the
        same block of producer ids again treats its log as corrupt.

        Source: KAFKA-17457: before 3.9 a migration could begin below 3.6-IV1, where the log has no
        transactions.
        """,
    fixed_in=("3.9.0",),
    swap=lambda parts: parts.replacing(zookeeper_copy=MigratesInPieces),
    scenario="controller_failover_during_migration",
    caught_by=("nodes-believe-the-truth",),
)


class MigratesInPieces(ZookeeperCopy):
    """Begins no transaction."""

    def is_one(self) -> bool:
        return False  # right: as the level of the cluster has it


UNFENCED_PRODUCER_ID_BLOCKS = Bug(
    name="unfenced-producer-id-blocks",
    title="a ZooKeeper-mode controller allocates producer ids after the migration to KRaft",
    about="""A ZooKeeper-mode controller allocates blocks of producer ids after it was deposed.

        It sets /latest_producer_id_block conditionally on the version that it has read, without
        checking that it is still the controller. A controller that lost its ZooKeeper session
        during an AllocateProducerIds continues after it reconnects, before it learns that a KRaft
        controller has replaced it and has migrated the last block: KRaft allocates the same ids
        again. We know of no issue in Kafka's tracker; Apache Kafka 3.9.1 has the bug, and 4.0 has
        no ZooKeeper mode.

        Source: kafka.coordinator.transaction.ZkProducerIdManager.getNewProducerIdBlock,
        kafka.zk.KafkaZkClient.conditionalUpdatePath, KIP-866.
        """,
    fixed_in=("4.0.0 (without ZooKeeper)",),
    swap=lambda parts: parts.replacing(controller_blocks=UnfencedBlocks),
    scenario="controller_failover_during_migration",
    caught_by=("producer-id-blocks-disjoint", "producer-id-unique", "next-producer-id-monotonic"),
)


class UnfencedBlocks(ControllerBlocks):
    """Allocates blocks as a broker does."""

    _set = Blocks._set  # right: only together with a look at the version of /controller_epoch


BUGS = (
    KAFKA_15010,
    KAFKA_15109,
    KAFKA_15552,
    KAFKA_17457,
    UNFENCED_PRODUCER_ID_BLOCKS,
)
