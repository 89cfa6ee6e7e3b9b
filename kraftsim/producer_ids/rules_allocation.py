"""The controller's side: which block a broker gets next, as shipped and as KIP-730 also allows.

Source: KIP-730; org.apache.kafka.controller.ProducerIdControlManager.
"""

from collections.abc import Callable
from typing import Final

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.timeline import Journal, TimelineDict, TimelineValue
from kraftsim.producer_ids.rules_blocks import BLOCK_SIZE, LAST_PRODUCER_ID, ProducerIdBlock
from protocol.errors import ErrorCode
from protocol.metadata.controller import ProducerIdsRecord

# --------------------------------------------------------------------------------------------------
# As shipped
#
# Blocks are allocated in the order of the metadata log and never twice; ids that a broker does not
# use are lost.

DynamicConfig = Callable[[str], str | None]
"""The dynamic configuration of all brokers, by name."""


def no_config(name: str) -> str | None:
    """Return None: no configuration is set."""
    return None


class ProducerIdControl:
    """`is_current(broker_id, broker_epoch)` returns whether that is the broker's current
    registration, fenced or not.

    Shipped controllers use no configuration (`dynamic_config`).
    """

    def __init__(
        self,
        journal: Journal,
        is_current: Callable[[int, int], bool],
        dynamic_config: DynamicConfig = no_config,
    ) -> None:
        self._is_current = is_current
        self._next_producer_id: TimelineValue[int | None] = TimelineValue(journal, None)
        """None until the first record: only then may a record have any value (a snapshot, a
        migration).
        """

    @property
    def next_producer_id(self) -> int:
        """The first id of the next block."""
        return self._next_producer_id.value or 0

    @property
    def block_size(self) -> int:
        """The size of the next block."""
        return BLOCK_SIZE

    def decide_allocate(
        self, broker_id: int, broker_epoch: int, request_number: int | None = None
    ) -> Decision[ProducerIdBlock] | Refusal:
        """Allocate the next block for a broker; the state changes when the record is replayed.

        Repeated requests get new blocks.

        Fails with STALE_BROKER_EPOCH if the broker is not registered or has registered again, and
        permanently with UNKNOWN_SERVER_ERROR when no block is left.
        """
        if not self._is_current(broker_id, broker_epoch):
            return Refusal(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not at epoch {broker_epoch}"
            )
        if self.next_producer_id > LAST_PRODUCER_ID - self.block_size:
            return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "producer ids are exhausted")
        block = ProducerIdBlock(first_producer_id=self.next_producer_id, size=self.block_size)
        return Decision(
            [
                ProducerIdsRecord(
                    broker_id=broker_id,
                    broker_epoch=broker_epoch,
                    next_producer_id=block.next_producer_id,
                )
            ],
            block,
        )

    def replay(self, record: ProducerIdsRecord) -> None:
        """Replay an allocation."""
        known = self._next_producer_id.value
        assert known is None or record.next_producer_id > known, (
            f"producer ids only grow: {record.next_producer_id} after {known}"
        )
        self._next_producer_id.value = record.next_producer_id


# --------------------------------------------------------------------------------------------------
# As KIP-730's text permits or rejects: another size, and idempotently per request
#
# An idempotent controller must identify requests, and keeps this in memory: after a failover, or if
# a broker restarts its numbering, a block is allocated twice or wasted all the same. KIP-730
# rejected it for that ("Idempotent RPC").

INT32_MAX: Final = 2**31 - 1
BLOCK_SIZE_CONFIG: Final = "kraftsim.producer.id.block.size"
"""A cluster-wide dynamic broker configuration: it is in the log, and every controller uses it."""


class ResizableProducerIdControl(ProducerIdControl):
    """Allocates blocks of a size that may change while brokers hold others.

    The dynamic configuration of all brokers takes precedence over the controller's own setting.
    """

    def __init__(
        self,
        journal: Journal,
        is_current: Callable[[int, int], bool],
        dynamic_config: DynamicConfig = no_config,
        *,
        size: int = BLOCK_SIZE,
    ) -> None:
        super().__init__(journal, is_current, dynamic_config)
        self._dynamic_config = dynamic_config
        self.resize(size)

    def resize(self, size: int) -> None:
        """Change the block size.

        Not recorded in the log: the next controller uses its own setting.
        """
        assert size > 0, "a block has an id"
        self._size = size

    @property
    def block_size(self) -> int:
        """The size of the next block. An invalid dynamic value is ignored."""
        text = self._dynamic_config(BLOCK_SIZE_CONFIG) or ""
        return (
            int(text)
            if text.isascii() and text.isdigit() and 0 < int(text) <= INT32_MAX
            else self._size
        )


class RepeatingProducerIdControl(ResizableProducerIdControl):
    """Answers a repeated request with the same block.

    A request is identified by broker id, epoch, and a number that the broker increments.
    """

    def __init__(
        self,
        journal: Journal,
        is_current: Callable[[int, int], bool],
        dynamic_config: DynamicConfig = no_config,
        *,
        size: int = BLOCK_SIZE,
    ) -> None:
        super().__init__(journal, is_current, dynamic_config, size=size)
        self._given: TimelineDict[tuple[int, int], tuple[int, ProducerIdBlock]] = TimelineDict(
            journal
        )
        """(Broker id, epoch) -> the last request's number, and its block; lost with this
        controller, and reverted with uncommitted records.
        """
        self._deciding: tuple[int, int, int] | None = None

    def decide_allocate(
        self, broker_id: int, broker_epoch: int, request_number: int | None = None
    ) -> Decision[ProducerIdBlock] | Refusal:
        """Allocate a block, or return the one of this request.

        A request without a number is always a new one.
        """
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
            block = ProducerIdBlock(
                first_producer_id=first_producer_id,
                size=record.next_producer_id - first_producer_id,
            )
            self._given[record.broker_id, record.broker_epoch] = (deciding[2], block)


class LastIdProducerIdControl(ResizableProducerIdControl):
    """Writes and reads the last id of a block in its record: the text calls the field an end
    without saying whether it is inclusive.

    Reading such a record as Kafka does allocates the last id of each block twice; the other way
    round one id of each block is lost.
    """

    def decide_allocate(
        self, broker_id: int, broker_epoch: int, request_number: int | None = None
    ) -> Decision[ProducerIdBlock] | Refusal:
        """Allocate the next block; its record has the last id of it."""
        decided = super().decide_allocate(broker_id, broker_epoch, request_number)
        if isinstance(decided, Refusal):
            return decided
        block = decided.result
        return Decision(
            [
                ProducerIdsRecord(
                    broker_id=broker_id,
                    broker_epoch=broker_epoch,
                    next_producer_id=block.last_producer_id,
                )
            ],
            block,
        )

    def replay(self, record: ProducerIdsRecord) -> None:
        """Replay an allocation up to the recorded id, inclusive."""
        behind = ProducerIdsRecord(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            next_producer_id=record.next_producer_id + 1,
        )
        super().replay(behind)
