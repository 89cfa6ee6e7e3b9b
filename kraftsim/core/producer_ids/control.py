"""Who gets which block of producer ids: the controller's part.

Blocks are given away in the order of the metadata log and never twice; what a broker does not use is lost.
Source: KIP-730, org.apache.kafka.controller.ProducerIdControlManager.
"""

from collections.abc import Callable

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.producer_ids.block import BLOCK_SIZE, LAST_PRODUCER_ID, ProducerIdBlock
from kraftsim.core.timeline import Journal, TimelineValue
from protocol.errors import ErrorCode
from protocol.metadata.m15_producer_ids import ProducerIdsRecord

Told = Callable[[str], str | None]
"""What was set for all brokers while the cluster runs, by name of the configuration."""


def nothing_told(name: str) -> str | None:
    """Return that nothing was set."""
    return None


class ProducerIdControl:
    """`is_current(broker_id, broker_epoch)` tells whether that is the broker's present registration; a fenced broker is served, too.

    Shipped controllers ask for no configuration (`told`).
    """

    def __init__(self, journal: Journal, is_current: Callable[[int, int], bool], told: Told = nothing_told) -> None:
        self._is_current = is_current
        self._next_producer_id: TimelineValue[int | None] = TimelineValue(journal, None)
        """None until the first record: only then may a record bring any value (a snapshot, a migration)."""

    @property
    def next_producer_id(self) -> int:
        """The first id of the next block."""
        return self._next_producer_id.value or 0

    @property
    def block_size(self) -> int:
        """How many ids the next block has."""
        return BLOCK_SIZE

    def decide_allocate(self, broker_id: int, broker_epoch: int, request_number: int | None = None) -> Decision[ProducerIdBlock] | Refusal:
        """Propose the next block for a broker; nothing changes until the record is replayed. Whether it has asked before makes no difference.

        Refuses with STALE_BROKER_EPOCH if the broker is not registered or registered again since, and with UNKNOWN_SERVER_ERROR, for ever,
        when no block is left.
        """
        if not self._is_current(broker_id, broker_epoch):
            return Refusal(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not at epoch {broker_epoch}")
        if self.next_producer_id > LAST_PRODUCER_ID - self.block_size:
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "producer ids are exhausted")
        block = ProducerIdBlock(first_producer_id=self.next_producer_id, size=self.block_size)
        return Decision([ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=block.next_producer_id)], block)

    def replay(self, record: ProducerIdsRecord) -> None:
        """Take a block as given away."""
        known = self._next_producer_id.value
        assert known is None or record.next_producer_id > known, f"producer ids only grow: {record.next_producer_id} after {known}"
        self._next_producer_id.value = record.next_producer_id
