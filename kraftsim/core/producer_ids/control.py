"""Allocation of producer id blocks on the controller.

Blocks are allocated in the order of the metadata log and never twice; ids that a broker does not use are lost.
Source: KIP-730, org.apache.kafka.controller.ProducerIdControlManager.
"""

from collections.abc import Callable

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.producer_ids.block import BLOCK_SIZE, LAST_PRODUCER_ID, ProducerIdBlock
from kraftsim.core.timeline import Journal, TimelineValue
from protocol.errors import ErrorCode
from protocol.metadata.m15_producer_ids import ProducerIdsRecord

DynamicConfig = Callable[[str], str | None]
"""The dynamic configuration of all brokers, by name."""


def no_config(name: str) -> str | None:
    """Return None: no configuration is set."""
    return None


class ProducerIdControl:
    """`is_current(broker_id, broker_epoch)` returns whether that is the broker's current registration, fenced or not.

    Shipped controllers use no configuration (`dynamic_config`).
    """

    def __init__(self, journal: Journal, is_current: Callable[[int, int], bool], dynamic_config: DynamicConfig = no_config) -> None:
        self._is_current = is_current
        self._next_producer_id: TimelineValue[int | None] = TimelineValue(journal, None)
        """None until the first record: only then may a record have any value (a snapshot, a migration)."""

    @property
    def next_producer_id(self) -> int:
        """The first id of the next block."""
        return self._next_producer_id.value or 0

    @property
    def block_size(self) -> int:
        """The size of the next block."""
        return BLOCK_SIZE

    def decide_allocate(self, broker_id: int, broker_epoch: int, request_number: int | None = None) -> Decision[ProducerIdBlock] | Refusal:
        """Allocate the next block for a broker; the state changes when the record is replayed. Repeated requests get new blocks.

        Fails with STALE_BROKER_EPOCH if the broker is not registered or has registered again, and permanently with UNKNOWN_SERVER_ERROR
        when no block is left.
        """
        if not self._is_current(broker_id, broker_epoch):
            return Refusal(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not at epoch {broker_epoch}")
        if self.next_producer_id > LAST_PRODUCER_ID - self.block_size:
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "producer ids are exhausted")
        block = ProducerIdBlock(first_producer_id=self.next_producer_id, size=self.block_size)
        return Decision([ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=block.next_producer_id)], block)

    def replay(self, record: ProducerIdsRecord) -> None:
        """Replay an allocation."""
        known = self._next_producer_id.value
        assert known is None or record.next_producer_id > known, f"producer ids only grow: {record.next_producer_id} after {known}"
        self._next_producer_id.value = record.next_producer_id
