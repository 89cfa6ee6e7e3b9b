"""Takes a block of producer ids out of ZooKeeper: reads the last one, and sets the next one over the version that was read, until that succeeds.

A broker does it for itself below 3.0-IV0, and the controller for brokers from there on; both kinds stand side by side, because either sees what the
other has set. A controller sets it only while it is controller. Apache Kafka's looks at the version of the block alone: one that does not know yet
that it is deposed hands out what a migration has copied (bug `unfenced-producer-id-blocks`). After an answer that was lost nobody knows whether the
text was set: then the block behind it is taken, and one is skipped.
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
from kraftsim.node.zookeeper_mode.fenced_writes import FencedWrites
from kraftsim.node.zookeeper_mode.znode_writer import set_request
from protocol.zookeeper.kafka_znodes import PRODUCER_ID_BLOCK
from protocol.zookeeper.op_codes import ZookeeperError

BY_BROKER: Final = "broker"
BY_CONTROLLER: Final = "controller"
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1


class Blocks:
    """Blocks that a broker takes for itself: only the version of the znode stands between it and somebody who is faster."""

    given_by = BY_BROKER

    def __init__(self, client: ZookeeperClient) -> None:
        self._client = client

    async def take(self, broker_id: int, note: Callable[[Event], None]) -> ProducerIdBlock | Refusal:
        """Return a block that belongs to a broker now, or why there is none. Raises ZookeeperRefused where ZooKeeper cannot be asked."""
        while True:
            data, stat = await self._client.get(PRODUCER_ID_BLOCK)
            block = block_behind(data)
            if isinstance(block, Refusal):
                return block
            try:
                await self._set(block_text(block, broker_id), stat.version)
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
                    given_by=self.given_by,
                )
            )
            return block

    async def _set(self, text: bytes, version: int) -> None:
        await self._client.set(PRODUCER_ID_BLOCK, text, version)


class ControllerBlocks(Blocks):
    """Blocks that a controller takes for brokers, as long as nobody has become controller after it: KRaft has copied the last block by then."""

    given_by = BY_CONTROLLER

    def __init__(self, client: ZookeeperClient, writes: FencedWrites) -> None:
        super().__init__(client)
        self._writes = writes

    async def take(self, broker_id: int, note: Callable[[Event], None]) -> ProducerIdBlock | Refusal:
        """Return a block that belongs to a broker now, or why there is none. Raises ControllerMoved and ZookeeperRefused."""
        return await super().take(broker_id, note)

    async def _set(self, text: bytes, version: int) -> None:
        await self._writes.attempt([set_request(PRODUCER_ID_BLOCK, text, version)])
