"""Producer-id blocks in ZooKeeper mode: the znode /latest_producer_id_block.

Each broker writes it by itself, or the controller does for all brokers (KIP-730's bridge).

Source: KIP-730; kafka.coordinator.transaction.ZkProducerIdManager,
kafka.controller.KafkaController.processAllocateProducerIds.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.producer_ids.events import ProducerIdBlockAllocated
from kraftsim.producer_ids.rules_allocation import ProducerIdBlock, block_behind, block_text
from kraftsim.server.outbound import OnAnswer
from kraftsim.server.shell import NodeShell
from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.session import ZookeeperSession
from kraftsim.zookeeper.znode_writer import (
    RETRY_MS,
    FencedWrites,
    raise_unless_lost,
    set_request,
)
from protocol.errors import ErrorCode
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse
from protocol.schema import Message
from protocol.zookeeper.kafka_znodes import PRODUCER_ID_BLOCK
from protocol.zookeeper.op_codes import ZookeeperError

# --------------------------------------------------------------------------------------------------
# Allocates producer-id blocks from ZooKeeper: reads the latest block and conditionally sets the
# next one, until that succeeds.
#
# Below 3.0-IV0 each broker does this for itself, from there on the controller does it for brokers;
# both can coexist, because each sees what the other has set. A controller sets the znode only while
# it is the controller. Apache Kafka's controller checks only the version of the block znode: one
# that does not yet know that it was deposed can allocate a block that a migration has already
# copied (bug `unfenced-producer-id-blocks`). After a lost response the outcome is unknown: the next
# block is allocated, and one may be skipped.
# Source: kafka.coordinator.transaction.ZkProducerIdManager.getNewProducerIdBlock, KIP-730.

BY_BROKER: Final = "broker"
BY_CONTROLLER: Final = "controller"
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1


class Blocks:
    """Blocks that a broker allocates for itself, fenced only by the version of the znode."""

    given_by = BY_BROKER

    def __init__(self, client: ZookeeperClient) -> None:
        self._client = client

    async def take(
        self, broker_id: int, emit: Callable[[Event], None]
    ) -> ProducerIdBlock | Refusal:
        """Return the block allocated to a broker, or the reason for refusal.

        Raises ZookeeperRefused if ZooKeeper is unavailable.
        """
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
                continue  # a concurrent allocation came first
            emit(
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
    """Blocks that a controller allocates for brokers, fenced by the controller epoch: KRaft has
    copied the latest block by the time it changes.
    """

    given_by = BY_CONTROLLER

    def __init__(self, client: ZookeeperClient, writes: FencedWrites) -> None:
        super().__init__(client)
        self._writes = writes

    async def take(
        self, broker_id: int, emit: Callable[[Event], None]
    ) -> ProducerIdBlock | Refusal:
        """Return the block allocated to a broker, or the reason for refusal.

        It is allocated again after a lost connection (KafkaZkClient.retryRequestUntilConnected).
        Raises ControllerMoved and ZookeeperRefused.
        """
        while True:
            try:
                return await super().take(broker_id, emit)
            except ZookeeperRefused as refused:
                raise_unless_lost(self._client, refused)
            await asyncio.sleep(RETRY_MS / 1000)

    async def _set(self, text: bytes, version: int) -> None:
        await self._writes.attempt([set_request(PRODUCER_ID_BLOCK, text, version)])


# --------------------------------------------------------------------------------------------------
# Producer-id allocation without AllocateProducerIds: each broker allocates its blocks from
# ZooKeeper.
#
# Source: kafka.coordinator.transaction.ZkProducerIdManager, KIP-98.


class ZnodeBlocks:
    """Implements the allocation channel to the controller."""

    def __init__(self, shell: NodeShell, session: ZookeeperSession) -> None:
        self._shell = shell
        self._session = session

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Allocate the next block."""
        self._shell.tasks.spawn(self._take(on_answer), "producer-id-block")

    async def _take(self, on_answer: OnAnswer) -> None:
        shell = self._shell
        try:
            block = await self._session.until_connected(
                lambda client: Blocks(client).take(shell.config.node_id, shell.world.emit)
            )
        except ZookeeperRefused:
            on_answer(AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        if isinstance(block, Refusal):
            on_answer(AllocateProducerIdsResponse(error_code=block.error))
        else:
            on_answer(
                AllocateProducerIdsResponse(
                    producer_id_start=block.first_producer_id, producer_id_len=block.size
                )
            )
