"""The block of producer ids behind the one that /latest_producer_id_block names: what whoever sets the znode next may call its own.

The znode holds both ends of the last block that was taken, both inside, as text. Nobody owns a block before its text is set over the version that was
read: of two who read the same, one sets and the other reads again.
Source: kafka.coordinator.transaction.ZkProducerIdManager (KIP-98), kafka.zk.ProducerIdBlockZNode.
"""

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.block import BLOCK_SIZE, LAST_PRODUCER_ID, ProducerIdBlock
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.zookeeper.kafka_znodes import ProducerIdBlockZnode

FIRST_BLOCK = ProducerIdBlock(first_producer_id=0, size=BLOCK_SIZE)


def block_behind(data: bytes | None) -> ProducerIdBlock | Refusal:
    """Return the next block, given what the znode holds; nothing in it: none was ever taken. Refuses where ids are used up, or the text is none."""
    if not data:
        return FIRST_BLOCK
    try:
        latest = ProducerIdBlockZnode.parse(data)
    except MalformedMessage as malformed:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"the znode of producer ids cannot be read: {malformed}")
    if latest.last_producer_id > LAST_PRODUCER_ID - BLOCK_SIZE:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "producer ids are exhausted")
    return ProducerIdBlock(first_producer_id=latest.last_producer_id + 1, size=BLOCK_SIZE)


def block_text(block: ProducerIdBlock, broker_id: int) -> bytes:
    """Return what the znode holds once a broker has taken a block."""
    return ProducerIdBlockZnode(broker_id=broker_id, first_producer_id=block.first_producer_id, last_producer_id=block.last_producer_id).build()
