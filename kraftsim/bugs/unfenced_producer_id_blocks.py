"""A controller of ZooKeeper's time hands out blocks of producer ids after it was deposed.

It sets /latest_producer_id_block over the version that it has read, and does not look whether it still is controller. One that lost its connection
to ZooKeeper while it was asked for a block goes on where it was when it is back, before it hears that a controller of KRaft has taken its place and
has copied the last block: KRaft hands the same ids out again. No issue of Kafka's tracker is known to us; Apache Kafka 3.9.1 is so, and in 4.0 there
is no ZooKeeper any more.

Source: kafka.coordinator.transaction.ZkProducerIdManager.getNewProducerIdBlock, kafka.zk.KafkaZkClient.conditionalUpdatePath, KIP-866.
"""

from kraftsim.bugs.bug import Bug
from kraftsim.node.zookeeper_mode.producer_id_blocks import Blocks, ControllerBlocks


class UnfencedBlocks(ControllerBlocks):
    """Takes blocks as a broker does."""

    _set = Blocks._set  # right: only together with a look at the version of /controller_epoch


BUG = Bug(
    name="unfenced-producer-id-blocks",
    title="a controller of ZooKeeper's time hands out producer ids after KRaft has taken over",
    fixed_in=("4.0.0 (without ZooKeeper)",),
    swap=lambda parts: parts.replacing(controller_blocks=UnfencedBlocks),
    story="controller_failover_during_migration",
    caught_by=("producer-id-blocks-disjoint", "producer-id-unique", "metadata-log-monotonic"),
)
