"""A ZooKeeper-mode controller allocates blocks of producer ids after it was deposed.

It sets /latest_producer_id_block conditionally on the version that it has read, without checking
that it is still the controller. A controller that lost its ZooKeeper session during an
AllocateProducerIds continues after it reconnects, before it learns that a KRaft controller has
replaced it and has migrated the last block: KRaft allocates the same ids again. We know of no issue
in Kafka's tracker; Apache Kafka 3.9.1 has the bug, and 4.0 has no ZooKeeper mode.

Source: kafka.coordinator.transaction.ZkProducerIdManager.getNewProducerIdBlock,
kafka.zk.KafkaZkClient.conditionalUpdatePath, KIP-866.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.producer_ids.zookeeper import Blocks, ControllerBlocks


class UnfencedBlocks(ControllerBlocks):
    """Allocates blocks as a broker does."""

    _set = Blocks._set  # right: only together with a look at the version of /controller_epoch


BUG = Bug(
    name="unfenced-producer-id-blocks",
    title="a ZooKeeper-mode controller allocates producer ids after the migration to KRaft",
    fixed_in=("4.0.0 (without ZooKeeper)",),
    swap=lambda parts: parts.replacing(controller_blocks=UnfencedBlocks),
    scenario="controller_failover_during_migration",
    caught_by=("producer-id-blocks-disjoint", "producer-id-unique", "next-producer-id-monotonic"),
)
