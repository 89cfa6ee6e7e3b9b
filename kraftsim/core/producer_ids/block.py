"""A block of producer ids, the unit of allocation by the controller.

Both ends have a name here because the field on the wire is the inclusive start with a length, and the record has the start of the *next*
block: confusing the two was KAFKA-15552.   Source: org.apache.kafka.server.common.ProducerIdsBlock.
"""

from dataclasses import dataclass
from typing import NewType

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
        """The id at which a broker prefetches the next block: at 90 %.   Source: ProducerIdManager.PidPrefetchThreshold."""
        return self.first_producer_id + self.size * 9 // 10


EMPTY_BLOCK = ProducerIdBlock(first_producer_id=0, size=0)
"""The block of a broker before its first allocation, and of a controller before the first record."""


def following_block(block: ProducerIdBlock) -> ProducerIdBlock:
    """Return the block after this one."""
    return ProducerIdBlock(first_producer_id=block.next_producer_id, size=BLOCK_SIZE)
