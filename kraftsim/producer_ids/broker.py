"""Runs a broker's source of producer ids: carries out its effects, and sends its requests over the
channel that the release or a variant has.

Source: KIP-730; kafka.coordinator.transaction.RPCProducerIdManager,
kafka.server.NodeToControllerChannelManager.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

from kraftsim.core.decision import Refusal
from kraftsim.producer_ids.events import ProducerIdBlockAllocated
from kraftsim.producer_ids.rules_allocation import ProducerId, numbered
from kraftsim.producer_ids.rules_block_clients import (
    CompleteRequest,
    Effect,
    EndBroker,
    ProducerIdSource,
    SendAllocate,
    WaitingRequest,
    WakeAt,
    own_block,
)
from kraftsim.server.config import NodeConfig
from kraftsim.server.outbound import OnAnswer
from kraftsim.server.pump import Pump
from kraftsim.server.shell import NodeShell
from protocol.errors import ErrorCode
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from protocol.schema import Message

# --------------------------------------------------------------------------------------------------
# The broker's producer id manager: runs the core's state machine, sends its AllocateProducerIds
# requests, completes waiting claims.
#
# Source: kafka.coordinator.transaction.RPCProducerIdManager, NodeToControllerChannelManager.

OnProducerId = Callable[[ProducerId | Refusal], None]


class BlockChannel(Protocol):
    """The channel by which producer id blocks are allocated."""

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Send AllocateProducerIds; `on_answer` is called once, later, with the response or an
        OSError.
        """
        ...


class ProducerIds:
    """Allocates single producer ids."""

    def __init__(
        self, shell: NodeShell, source: ProducerIdSource, controller: BlockChannel
    ) -> None:
        self._shell = shell
        self._clock = shell.world.clock
        self._broker_id = shell.config.node_id
        self._source = source
        self._controller = controller
        self._waiters: dict[int, OnProducerId] = {}
        self._pump: Pump[Effect] = Pump(self._carry_out)

    def claim(self, on_later: OnProducerId) -> ProducerId | Refusal | None:
        """Return a new id, or why there is none; None: `on_later` is called with either."""
        result, effects = self._source.claim(self._clock.monotonic_ms())
        if not isinstance(result, WaitingRequest):
            self._pump.run(effects)
            return result
        self._waiters[result.waiter] = on_later
        self._pump.run(effects)
        return None

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendAllocate():
                request = AllocateProducerIdsRequest(
                    broker_id=self._broker_id, broker_epoch=effect.broker_epoch
                )
                self._controller.send(request, self._on_answer)
            case CompleteRequest():
                self._waiters.pop(effect.waiter)(effect.result)
            case WakeAt():
                delay_ms = max(effect.at_ms - self._clock.monotonic_ms(), 0)
                asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_wake)
            case EndBroker():
                self._shell.fail(PermissionError(effect.why))
            case _:
                assert_never(effect)

    def _on_answer(self, answer: Message | OSError) -> None:
        now_ms = self._clock.monotonic_ms()
        if isinstance(answer, AllocateProducerIdsResponse):
            effects = self._source.on_response(
                answer.error_code, answer.producer_id_start, answer.producer_id_len, now_ms
            )
        else:
            effects = self._source.on_timeout(now_ms)
        self._pump.run(effects)

    def _on_wake(self) -> None:
        self._pump.run(self._source.on_wake(self._clock.monotonic_ms()))


# --------------------------------------------------------------------------------------------------
# Alternative channels for allocating producer id blocks, as discussed in KIP-730.
#
# The shipped channel is the one that brokers also use to forward requests to the controller.
#
# | name | behaviour | KIP-730 |
# |---|---|---|
# | `own-channel` | a dedicated connection for AllocateProducerIds | the latency of the shared one |
# | `numbered` | numbers requests, so a controller recognizes a retry | rejected: idempotent RPC |
# | `after-replay` | uses a block after its record is replayed | rejected: the response suffices |
# | `own-disk` | no RPC: the broker id and a counter on its disk | rejected: uncoordinated ids |
#
# The latency of the shared connection is neither low nor stable by any guarantee; `after-replay`
# waits until the record is in this broker's replica of the metadata log; `own-disk` has the broker
# id in the high bits of an id.
#
# Source: KIP-730.

COUNTER_FILE: Final = "kraftsim-producer-ids"
"""The number of ids that this broker has allocated so far, as text.

A broker that loses its disk restarts at zero.
"""
LOOK_SECONDS: Final = 0.005
NO_OFFSET = NO_BROKER_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelContext:
    """What the channels depend on: the node, the shipped channel, a factory of channels to the
    controller, and the next producer id according to the replicated metadata.
    """

    shell: NodeShell
    shared: BlockChannel
    new_channel: Callable[[str], BlockChannel]
    next_replicated_id: Callable[[], int]


def block_channel(config: NodeConfig, context: ChannelContext) -> BlockChannel:
    """Return the channel configured by `kraftsim.producer.id.blocks`."""
    match config.producer_id_blocks:
        case "own-channel":
            return context.new_channel("producer-ids")
        case "numbered":
            return NumberedRequests(context.shared)
        case "after-replay":
            return BlocksAfterReplay(context.shell, context.shared, context.next_replicated_id)
        case "own-disk":
            return BlocksOnOwnDisk(context.shell)
        case _:
            return context.shared


class NumberedRequests:
    """Numbers requests from 1 on. A request that the channel retries keeps its number."""

    def __init__(self, shared: BlockChannel) -> None:
        self._shared = shared
        self._count = 0

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Send a request with the next number."""
        assert isinstance(body, AllocateProducerIdsRequest), (
            "the channel sends AllocateProducerIds only"
        )
        self._count += 1
        self._shared.send(numbered(body, self._count), on_answer)


class BlocksAfterReplay:
    """Delivers a response once the record of its block has been replicated to this broker."""

    def __init__(
        self, shell: NodeShell, shared: BlockChannel, next_replicated_id: Callable[[], int]
    ) -> None:
        self._shell = shell
        self._shared = shared
        self._next_replicated_id = next_replicated_id

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Send a request; its response is delivered after the block's record is applied."""

        def on_block(answer: Message | OSError) -> None:
            if (
                isinstance(answer, AllocateProducerIdsResponse)
                and answer.error_code == ErrorCode.NONE
            ):
                self._shell.tasks.spawn(self._deliver(answer, on_answer), "producer-id-block")
            else:
                on_answer(answer)

        self._shared.send(body, on_block)

    async def _deliver(self, answer: AllocateProducerIdsResponse, on_answer: OnAnswer) -> None:
        while self._next_replicated_id() < answer.producer_id_start + answer.producer_id_len:
            await asyncio.sleep(LOOK_SECONDS)
        on_answer(answer)


class BlocksOnOwnDisk:
    """Allocates ids from a counter on the broker's own disk; the counter is written before the
    first id of a block is used.
    """

    def __init__(self, shell: NodeShell) -> None:
        self._shell = shell

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Allocate the next block from the counter."""
        self._shell.tasks.spawn(self._count(on_answer), "producer-id-block")

    async def _count(self, on_answer: OnAnswer) -> None:
        world, broker_id = self._shell.world, self._shell.config.node_id
        try:
            counted = (
                _parse_counter(world.disk.read(COUNTER_FILE))
                if world.disk.exists(COUNTER_FILE)
                else 0
            )
            block = own_block(broker_id, counted)
            if isinstance(block, Refusal):
                on_answer(AllocateProducerIdsResponse(error_code=block.error))
                return
            await world.disk.replace(COUNTER_FILE, b"%d\n" % (counted + block.size))
        except OSError as refused:
            self._shell.fail_disk(COUNTER_FILE, "count", refused)
            return
        world.emit(
            ProducerIdBlockAllocated(
                broker_id=broker_id,
                broker_epoch=NO_BROKER_EPOCH,
                first_producer_id=block.first_producer_id,
                next_producer_id=block.next_producer_id,
                offset=NO_OFFSET,
                given_by="itself",
            )
        )
        on_answer(
            AllocateProducerIdsResponse(
                producer_id_start=block.first_producer_id, producer_id_len=block.size
            )
        )


def _parse_counter(content: bytes) -> int:
    """Parse the counter file.

    Raises OSError if it is unreadable, because ids in use would be unknown.
    """
    text = content.strip()
    if not text.isdigit():
        raise OSError(f"{COUNTER_FILE} holds no number")
    return int(text)
