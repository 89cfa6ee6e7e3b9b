"""Controllers that allocate blocks as KIP-730's text permits or rejects: with another size, and idempotently per request.

An idempotent controller must identify requests, and keeps this in memory: after a failover, or if a broker restarts its numbering, a block is
allocated twice or wasted all the same. KIP-730 rejected it for that.
Source: KIP-730 (block size decided by the controller; rejected alternative "Idempotent RPC").
"""

from collections.abc import Callable
from typing import Final

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.producer_ids.block import BLOCK_SIZE, ProducerIdBlock
from kraftsim.core.producer_ids.control import DynamicConfig, ProducerIdControl, no_config
from kraftsim.core.timeline import Journal, TimelineDict
from protocol.metadata.m15_producer_ids import ProducerIdsRecord

INT32_MAX: Final = 2**31 - 1
BLOCK_SIZE_CONFIG: Final = "kraftsim.producer.id.block.size"
"""A cluster-wide dynamic broker configuration: it is in the log, and every controller uses it."""


class ResizableProducerIdControl(ProducerIdControl):
    """Allocates blocks of a size that may change while brokers hold others.

    The dynamic configuration of all brokers takes precedence over the controller's own setting.
    """

    def __init__(
        self, journal: Journal, is_current: Callable[[int, int], bool], dynamic_config: DynamicConfig = no_config, *, size: int = BLOCK_SIZE
    ) -> None:
        super().__init__(journal, is_current, dynamic_config)
        self._dynamic_config = dynamic_config
        self.resize(size)

    def resize(self, size: int) -> None:
        """Change the block size. Not recorded in the log: the next controller uses its own setting."""
        assert size > 0, "a block has an id"
        self._size = size

    @property
    def block_size(self) -> int:
        """The size of the next block. An invalid dynamic value is ignored."""
        text = self._dynamic_config(BLOCK_SIZE_CONFIG) or ""
        return int(text) if text.isascii() and text.isdigit() and 0 < int(text) <= INT32_MAX else self._size


class RepeatingProducerIdControl(ResizableProducerIdControl):
    """Answers a repeated request with the same block.

    A request is identified by broker id, epoch, and a number that the broker increments.
    """

    def __init__(
        self, journal: Journal, is_current: Callable[[int, int], bool], dynamic_config: DynamicConfig = no_config, *, size: int = BLOCK_SIZE
    ) -> None:
        super().__init__(journal, is_current, dynamic_config, size=size)
        self._given: TimelineDict[tuple[int, int], tuple[int, ProducerIdBlock]] = TimelineDict(journal)
        """(Broker id, epoch) -> the last request's number, and its block; lost with this controller, and reverted with uncommitted records."""
        self._deciding: tuple[int, int, int] | None = None

    def decide_allocate(self, broker_id: int, broker_epoch: int, request_number: int | None = None) -> Decision[ProducerIdBlock] | Refusal:
        """Allocate a block, or return the one of this request. A request without a number is always a new one."""
        self._deciding = None
        if request_number is None:
            return super().decide_allocate(broker_id, broker_epoch)
        known = self._given.get((broker_id, broker_epoch))
        if known is not None and known[0] == request_number:
            return Decision([], known[1])
        decision = super().decide_allocate(broker_id, broker_epoch)
        self._deciding = (broker_id, broker_epoch, request_number)
        return decision

    def replay(self, record: ProducerIdsRecord) -> None:
        """Replay an allocation, and record its request if it was allocated here."""
        first_producer_id = self.next_producer_id
        super().replay(record)
        deciding, self._deciding = self._deciding, None
        if deciding is not None and deciding[:2] == (record.broker_id, record.broker_epoch):
            block = ProducerIdBlock(first_producer_id=first_producer_id, size=record.next_producer_id - first_producer_id)
            self._given[record.broker_id, record.broker_epoch] = (deciding[2], block)


class LastIdProducerIdControl(ResizableProducerIdControl):
    """Writes and reads the last id of a block in its record: the text calls the field an end without saying whether it is inclusive.

    Reading such a record as Kafka does allocates the last id of each block twice; the other way round one id of each block is lost.
    """

    def decide_allocate(self, broker_id: int, broker_epoch: int, request_number: int | None = None) -> Decision[ProducerIdBlock] | Refusal:
        """Allocate the next block; its record has the last id of it."""
        decided = super().decide_allocate(broker_id, broker_epoch, request_number)
        if isinstance(decided, Refusal):
            return decided
        block = decided.result
        return Decision([ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=block.last_producer_id)], block)

    def replay(self, record: ProducerIdsRecord) -> None:
        """Replay an allocation up to the recorded id, inclusive."""
        behind = ProducerIdsRecord(broker_id=record.broker_id, broker_epoch=record.broker_epoch, next_producer_id=record.next_producer_id + 1)
        super().replay(behind)
