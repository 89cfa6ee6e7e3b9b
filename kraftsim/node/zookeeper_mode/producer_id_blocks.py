"""Takes a block of producer ids out of ZooKeeper: reads the last one, and sets the next one over the version that was read, until that succeeds.

A broker does it for itself below 3.0-IV0, and the controller for brokers from there on; both kinds stand side by side, because either sees what the
other has set. After an answer that was lost nobody knows whether the text was set: then the block behind it is taken, and one is skipped.
Source: kafka.coordinator.transaction.ZkProducerIdManager.getNewProducerIdBlock, KIP-730.
"""

from collections.abc import Callable
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import ProducerIdBlock
from kraftsim.core.producer_ids.zookeeper_blocks import block_behind, block_text
from kraftsim.events.event import Event
from kraftsim.events.producer_ids import ProducerIdBlockAllocated
from kraftsim.node.zookeeper.client import ZookeeperClient, ZookeeperRefused
from protocol.zookeeper.kafka_znodes import PRODUCER_ID_BLOCK
from protocol.zookeeper.op_codes import ZookeeperError

BY_BROKER: Final = "broker"
BY_CONTROLLER: Final = "controller"
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1


async def claim_block(
    client: ZookeeperClient, broker_id: int, note: Callable[[Event], None], *, given_by: str = BY_CONTROLLER
) -> ProducerIdBlock | Refusal:
    """Return a block that belongs to a broker now, or why there is none. Raises ZookeeperRefused where ZooKeeper cannot be asked."""
    while True:
        data, stat = await client.get(PRODUCER_ID_BLOCK)
        block = block_behind(data)
        if isinstance(block, Refusal):
            return block
        try:
            await client.set(PRODUCER_ID_BLOCK, block_text(block, broker_id), stat.version)
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.BAD_VERSION:
                raise
            continue  # somebody else was faster
        note(
            ProducerIdBlockAllocated(
                broker_id=broker_id,
                broker_epoch=NO_EPOCH,
                first_producer_id=block.first_producer_id,
                next_producer_id=block.next_producer_id,
                offset=NO_OFFSET,
                given_by=given_by,
            )
        )
        return block
