"""Producer-id allocation without AllocateProducerIds: each broker allocates its blocks from ZooKeeper.

Source: kafka.coordinator.transaction.ZkProducerIdManager, KIP-98.
"""

from typing import TYPE_CHECKING

from kraftsim.core.decision import Refusal
from kraftsim.node.outbound import OnAnswer
from kraftsim.node.zookeeper.client import ZookeeperRefused
from kraftsim.node.zookeeper_mode.producer_id_blocks import Blocks
from protocol.errors import ErrorCode
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse
from protocol.schema import Message

if TYPE_CHECKING:
    from kraftsim.node.zookeeper_mode.broker_mode import ZookeeperMode


class ZnodeBlocks:
    """Implements the allocation channel to the controller."""

    def __init__(self, mode: "ZookeeperMode") -> None:
        self._mode = mode

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Allocate the next block."""
        self._mode.shell.tasks.spawn(self._take(on_answer), "producer-id-block")

    async def _take(self, on_answer: OnAnswer) -> None:
        mode = self._mode
        try:
            block = await mode.session.until_connected(lambda client: Blocks(client).take(mode.shell.config.node_id, mode.shell.world.emit))
        except ZookeeperRefused:
            on_answer(AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        if isinstance(block, Refusal):
            on_answer(AllocateProducerIdsResponse(error_code=block.error))
        else:
            on_answer(AllocateProducerIdsResponse(producer_id_start=block.first_producer_id, producer_id_len=block.size))
