"""The block of producer ids after the one in /latest_producer_id_block: the next one to claim.

The znode has the last claimed block as JSON, with both ends inclusive. A block is claimed by setting the znode with the version that was
read: of two concurrent brokers, one succeeds and the other reads again.
Source: kafka.coordinator.transaction.ZkProducerIdManager (KIP-98), kafka.zk.ProducerIdBlockZNode.
"""

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import BLOCK_SIZE, LAST_PRODUCER_ID, ProducerIdBlock
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.zookeeper.kafka_znodes import ProducerIdBlockZnode

FIRST_BLOCK = ProducerIdBlock(first_producer_id=0, size=BLOCK_SIZE)


def block_behind(data: bytes | None) -> ProducerIdBlock | Refusal:
    """Return the next block, given the data of the znode; without data the first one.

    Fails if ids are exhausted, or the data is invalid.
    """
    if not data:
        return FIRST_BLOCK
    try:
        latest = ProducerIdBlockZnode.parse(data)
    except MalformedMessage as malformed:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"the producer id block znode is invalid: {malformed}")
    if latest.last_producer_id > LAST_PRODUCER_ID - BLOCK_SIZE:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "producer ids are exhausted")
    return ProducerIdBlock(first_producer_id=latest.last_producer_id + 1, size=BLOCK_SIZE)


def block_text(block: ProducerIdBlock, broker_id: int) -> bytes:
    """Return the data of the znode after a broker has claimed a block."""
    return ProducerIdBlockZnode(broker_id=broker_id, first_producer_id=block.first_producer_id, last_producer_id=block.last_producer_id).build()
