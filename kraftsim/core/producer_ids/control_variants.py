"""Controllers that give blocks of producer ids as KIP-730's text allows or rejects: of another size, and once for each request.

A controller that repeats itself must know which request is which, and keeps that in memory: what it forgets at a failover, or takes for the same
request because a broker counts anew, it gives twice or burns all the same. KIP-730 rejected it for that.
Source: KIP-730 (block size decided by the controller; rejected alternative "Idempotent RPC").
"""

from collections.abc import Callable

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.producer_ids.block import BLOCK_SIZE, ProducerIdBlock
from kraftsim.core.producer_ids.control import ProducerIdControl
from kraftsim.core.timeline import Journal
from protocol.metadata.m15_producer_ids import ProducerIdsRecord


class ResizableProducerIdControl(ProducerIdControl):
    """Gives blocks of a size that may be changed while brokers run and hold others."""

    def __init__(self, journal: Journal, is_current: Callable[[int, int], bool]) -> None:
        super().__init__(journal, is_current)
        self._size = BLOCK_SIZE

    def resize(self, size: int) -> None:
        """Give blocks of this size from now on. Nothing of it is in the log: the next controller goes by its own."""
        assert size > 0, "a block has an id"
        self._size = size

    @property
    def block_size(self) -> int:
        """How many ids the next block has."""
        return self._size


class RepeatingProducerIdControl(ProducerIdControl):
    """Answers a request that comes again with the block that it was given. A request is a broker, its epoch, and a number that the broker counts."""

    def __init__(self, journal: Journal, is_current: Callable[[int, int], bool]) -> None:
        super().__init__(journal, is_current)
        self._given: dict[tuple[int, int], tuple[int, ProducerIdBlock]] = {}
        """Broker and epoch -> the last request's number, and its block; gone with this controller."""

    def decide_once(self, broker_id: int, broker_epoch: int, request_number: int) -> Decision[ProducerIdBlock] | Refusal:
        """Propose a block, or none but the one that this request was given before."""
        known = self._given.get((broker_id, broker_epoch))
        if known is not None and known[0] == request_number:
            return Decision([], known[1])
        decision = self.decide_allocate(broker_id, broker_epoch)
        if isinstance(decision, Decision):
            self._given[broker_id, broker_epoch] = (request_number, decision.result)
        return decision


class LastIdProducerIdControl(ProducerIdControl):
    """Writes the last id of a block into its record, and reads it so: the text calls the field an end and does not say on which side it lies.

    Whoever reads such a record as Kafka does gives the last id of each block twice; the other way round one id of each is lost.
    """

    def decide_allocate(self, broker_id: int, broker_epoch: int) -> Decision[ProducerIdBlock] | Refusal:
        """Propose the next block; its record names the last id in it."""
        decided = super().decide_allocate(broker_id, broker_epoch)
        if isinstance(decided, Refusal):
            return decided
        block = decided.result
        return Decision([ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=block.last_producer_id)], block)

    def replay(self, record: ProducerIdsRecord) -> None:
        """Take a block as given away, up to the id that is named."""
        behind = ProducerIdsRecord(broker_id=record.broker_id, broker_epoch=record.broker_epoch, next_producer_id=record.next_producer_id + 1)
        super().replay(behind)
