"""The controller's side: which block a broker gets next, as shipped and as KIP-730 also allows.

Source: KIP-730; org.apache.kafka.controller.ProducerIdControlManager.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NewType

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.timeline import Journal, TimelineDict, TimelineValue
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from protocol.metadata.controller import ProducerIdsRecord
from protocol.schema import Message
from protocol.zookeeper.kafka_znodes import ProducerIdBlockZnode

# --------------------------------------------------------------------------------------------------
# Blocks of producer ids: their bounds, how a response becomes a block, numbered requests, and the
# block znode of ZooKeeper
#
# Both ends of a block have a name here because the field on the wire is the inclusive start with a
# length, and the record holds the start of the *next* block: confusing the two was KAFKA-15552.
# Source: KIP-730; org.apache.kafka.server.common.ProducerIdsBlock, ProducerIdBlockZNode,
# RPCProducerIdManager.

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
    error_code: int,
    first_producer_id: int,
    size: int,
    current: ProducerIdBlock,
    *,
    may_overlap: bool = True,
) -> ProducerIdBlock | Refusal:
    """Return the received block, or the error.

    `may_overlap`: it may start *at* the last id of the current one (up to 4.2, KAFKA-20031).
    """
    if error_code != ErrorCode.NONE:
        return Refusal(_known_error(error_code), "error response of the controller")
    if first_producer_id < current.last_producer_id + (not may_overlap):
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
