"""Controllers that give blocks of producer ids as KIP-730's text allows or rejects: of another size, and once for each request.

A controller that repeats itself must know which request is which, and keeps that in memory: what it forgets at a failover, or takes for the same
request because a broker counts anew, it gives twice or burns all the same. KIP-730 rejected it for that.
Source: KIP-730 (block size decided by the controller; rejected alternative "Idempotent RPC").
"""

from collections.abc import Callable
from typing import Final

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.producer_ids.block import BLOCK_SIZE, ProducerIdBlock
from kraftsim.core.producer_ids.control import ProducerIdControl, Told, nothing_told
from kraftsim.core.timeline import Journal, TimelineDict
from protocol.metadata.m15_producer_ids import ProducerIdsRecord

INT32_MAX: Final = 2**31 - 1
BLOCK_SIZE_CONFIG: Final = "kraftsim.producer.id.block.size"
"""Of all brokers, as IncrementalAlterConfigs sets it: it is in the log, and each controller goes by it."""


class ResizableProducerIdControl(ProducerIdControl):
    """Gives blocks of a size that may be changed while brokers run and hold others.

    What is set for all brokers goes before what this controller was told.
    """

    def __init__(self, journal: Journal, is_current: Callable[[int, int], bool], told: Told = nothing_told, *, size: int = BLOCK_SIZE) -> None:
        super().__init__(journal, is_current, told)
        self._told = told
        self.resize(size)

    def resize(self, size: int) -> None:
        """Give blocks of this size from now on. Nothing of it is in the log: the next controller goes by its own."""
        assert size > 0, "a block has an id"
        self._size = size

    @property
    def block_size(self) -> int:
        """How many ids the next block has. What is set and is no size is as if it were not set."""
        told = self._told(BLOCK_SIZE_CONFIG) or ""
        return int(told) if told.isascii() and told.isdigit() and 0 < int(told) <= INT32_MAX else self._size


class RepeatingProducerIdControl(ResizableProducerIdControl):
    """Answers a request that comes again with the block that it was given. A request is a broker, its epoch, and a number that the broker counts."""

    def __init__(self, journal: Journal, is_current: Callable[[int, int], bool], told: Told = nothing_told, *, size: int = BLOCK_SIZE) -> None:
        super().__init__(journal, is_current, told, size=size)
        self._given: TimelineDict[tuple[int, int], tuple[int, ProducerIdBlock]] = TimelineDict(journal)
        """Broker and epoch -> the last request's number, and its block; gone with this controller, and undone with what it did not commit."""
        self._deciding: tuple[int, int, int] | None = None

    def decide_allocate(self, broker_id: int, broker_epoch: int, request_number: int | None = None) -> Decision[ProducerIdBlock] | Refusal:
        """Propose a block, or none but the one that this request was given before. A request without a number is always a new one."""
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
        """Take a block as given away, and remember for which request if it was decided here."""
        first_producer_id = self.next_producer_id
        super().replay(record)
        deciding, self._deciding = self._deciding, None
        if deciding is not None and deciding[:2] == (record.broker_id, record.broker_epoch):
            block = ProducerIdBlock(first_producer_id=first_producer_id, size=record.next_producer_id - first_producer_id)
            self._given[record.broker_id, record.broker_epoch] = (deciding[2], block)


class LastIdProducerIdControl(ResizableProducerIdControl):
    """Writes the last id of a block into its record, and reads it so: the text calls the field an end and does not say on which side it lies.

    Whoever reads such a record as Kafka does gives the last id of each block twice; the other way round one id of each is lost.
    """

    def decide_allocate(self, broker_id: int, broker_epoch: int, request_number: int | None = None) -> Decision[ProducerIdBlock] | Refusal:
        """Propose the next block; its record names the last id in it."""
        decided = super().decide_allocate(broker_id, broker_epoch, request_number)
        if isinstance(decided, Refusal):
            return decided
        block = decided.result
        return Decision([ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=block.last_producer_id)], block)

    def replay(self, record: ProducerIdsRecord) -> None:
        """Take a block as given away, up to the id that is named."""
        behind = ProducerIdsRecord(broker_id=record.broker_id, broker_epoch=record.broker_epoch, next_producer_id=record.next_producer_id + 1)
        super().replay(behind)
