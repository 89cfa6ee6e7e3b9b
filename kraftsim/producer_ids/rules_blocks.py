"""Blocks of producer ids: their bounds, how a response becomes a block, numbered requests, and the
block znode of ZooKeeper.

Both ends of a block have a name here because the field on the wire is the inclusive start with a
length, and the record holds the start of the *next* block: confusing the two was KAFKA-15552.
Source: KIP-730; org.apache.kafka.server.common.ProducerIdsBlock, ProducerIdBlockZNode,
RPCProducerIdManager.
"""

from dataclasses import dataclass
from typing import Final, NewType

from kraftsim.core.decision import Refusal
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from protocol.schema import Message
from protocol.zookeeper.kafka_znodes import ProducerIdBlockZnode

# --------------------------------------------------------------------------------------------------
# A block, the unit of allocation

ProducerId = NewType("ProducerId", int)

BLOCK_SIZE = 1000
"""PRODUCER_ID_BLOCK_SIZE."""

LAST_PRODUCER_ID = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlock:
    """The ids first_producer_id .. last_producer_id, both inclusive."""

    first_producer_id: int
    size: int

    @property
    def last_producer_id(self) -> int:
        """The last id of the block; one below the first if the block is empty."""
        return self.first_producer_id + self.size - 1

    @property
    def next_producer_id(self) -> int:
        """The first id after the block: the start of the next one."""
        return self.first_producer_id + self.size

    @property
    def prefetch_producer_id(self) -> int:
        """The id at which a broker prefetches the next block: at 90 %.

        Source: ProducerIdManager.PidPrefetchThreshold.
        """
        return self.first_producer_id + self.size * 9 // 10


EMPTY_BLOCK = ProducerIdBlock(first_producer_id=0, size=0)
"""The block of a broker before its first allocation, and of a controller before the first
record.
"""


def following_block(block: ProducerIdBlock) -> ProducerIdBlock:
    """Return the block after this one."""
    return ProducerIdBlock(first_producer_id=block.next_producer_id, size=BLOCK_SIZE)


# --------------------------------------------------------------------------------------------------
# From an AllocateProducerIds response to a block
#
# A block that starts before the end of the current one, or that exceeds int64, would duplicate ids;
# it is dropped.


def received_block(
    error_code: int, first_producer_id: int, size: int, current: ProducerIdBlock
) -> ProducerIdBlock | Refusal:
    """Return the received block, or the error.

    (Up to 3.9 it may start *at* the last id of the current one.)
    """
    if error_code != ErrorCode.NONE:
        return Refusal(_known_error(error_code), "error response of the controller")
    if first_producer_id < current.last_producer_id:
        why = (
            f"block at {first_producer_id} starts before {current.last_producer_id}, the last id "
            "of the current one"
        )
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, why)
    if first_producer_id < 0 or size < 0 or first_producer_id > LAST_PRODUCER_ID - size:
        return Refusal(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"block at {first_producer_id} of {size} ids exceeds the range of producer ids",
        )
    return ProducerIdBlock(first_producer_id=first_producer_id, size=size)


def _known_error(error_code: int) -> ErrorCode:
    try:
        return ErrorCode(error_code)
    except ValueError:  # an unknown error code
        return ErrorCode.UNKNOWN_SERVER_ERROR


# --------------------------------------------------------------------------------------------------
# Numbered requests: a tagged field by which a controller recognizes a repeated AllocateProducerIds
#
# No shipped request has it, and a controller that does not know the field ignores it.
# Source: KIP-730 (rejected alternative "Idempotent RPC"), KIP-482 (tagged fields).

REQUEST_NUMBER_TAG: Final = 7300
"""Far above the tags that Kafka uses so far."""
NUMBER_BYTES: Final = 8


def numbered(request: AllocateProducerIdsRequest, number: int) -> AllocateProducerIdsRequest:
    """Return the request with a number; `number` is at least 0."""
    message: Message = request
    message._tags = {REQUEST_NUMBER_TAG: number.to_bytes(NUMBER_BYTES)}
    return request


def number_of(request: AllocateProducerIdsRequest) -> int | None:
    """Return the number of a request; None if it has none, or the field is malformed."""
    message: Message = request
    content: bytes | None = (message._tags or {}).get(REQUEST_NUMBER_TAG)
    return int.from_bytes(content) if content is not None and len(content) == NUMBER_BYTES else None


# --------------------------------------------------------------------------------------------------
# The block znode, /latest_producer_id_block: JSON of the last claimed block, with both ends
# inclusive
#
# A block is claimed by setting the znode with the version that was read: of two concurrent brokers,
# one succeeds and the other reads again.
# Source: kafka.coordinator.transaction.ZkProducerIdManager (KIP-98), kafka.zk.ProducerIdBlockZNode.

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
        return Refusal(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the producer id block znode is invalid: {malformed}"
        )
    if latest.last_producer_id > LAST_PRODUCER_ID - BLOCK_SIZE:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "producer ids are exhausted")
    return ProducerIdBlock(first_producer_id=latest.last_producer_id + 1, size=BLOCK_SIZE)


def block_text(block: ProducerIdBlock, broker_id: int) -> bytes:
    """Return the data of the znode after a broker has claimed a block."""
    return ProducerIdBlockZnode(
        broker_id=broker_id,
        first_producer_id=block.first_producer_id,
        last_producer_id=block.last_producer_id,
    ).build()
