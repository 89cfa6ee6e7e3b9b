"""Alternative channels for allocating producer id blocks, as discussed in KIP-730.

The shipped channel is the one that brokers also use to forward requests to the controller.

| name | behaviour | KIP-730 |
|---|---|---|
| `own-channel` | sends AllocateProducerIds over a dedicated connection | the shared one has no guarantee of low or stable latency |
| `numbered` | numbers requests, so that a controller recognizes a retry | rejected: an idempotent RPC |
| `after-replay` | uses a block once its record is in this broker's replica of the metadata log | rejected: the response is sufficient |
| `own-disk` | no RPC: the broker id in the high bits, a counter on its disk | rejected: uncoordinated ids |

Source: KIP-730.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.core.producer_ids.request_number import numbered
from kraftsim.core.producer_ids.source_variants import own_block
from kraftsim.events.producer_ids import ProducerIdBlockAllocated
from kraftsim.node.broker.producer_ids import BlockChannel
from kraftsim.node.config import NodeConfig
from kraftsim.node.outbound import OnAnswer
from kraftsim.node.shell import NodeShell
from protocol.errors import ErrorCode
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.schema import Message

COUNTER_FILE: Final = "kraftsim-producer-ids"
"""The number of ids that this broker has allocated so far, as text. A broker that loses its disk restarts at zero."""
LOOK_SECONDS: Final = 0.005
NO_OFFSET = NO_BROKER_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelContext:
    """What the channels depend on: the node, the shipped channel, a factory of channels to the controller, and the next producer id
    according to the replicated metadata."""

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
        assert isinstance(body, AllocateProducerIdsRequest), "the channel sends AllocateProducerIds only"
        self._count += 1
        self._shared.send(numbered(body, self._count), on_answer)


class BlocksAfterReplay:
    """Delivers a response once the record of its block has been replicated to this broker."""

    def __init__(self, shell: NodeShell, shared: BlockChannel, next_replicated_id: Callable[[], int]) -> None:
        self._shell = shell
        self._shared = shared
        self._next_replicated_id = next_replicated_id

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Send a request; its response is delivered after the block's record is applied."""

        def on_block(answer: Message | OSError) -> None:
            if isinstance(answer, AllocateProducerIdsResponse) and answer.error_code == ErrorCode.NONE:
                self._shell.tasks.spawn(self._deliver(answer, on_answer), "producer-id-block")
            else:
                on_answer(answer)

        self._shared.send(body, on_block)

    async def _deliver(self, answer: AllocateProducerIdsResponse, on_answer: OnAnswer) -> None:
        while self._next_replicated_id() < answer.producer_id_start + answer.producer_id_len:
            await asyncio.sleep(LOOK_SECONDS)
        on_answer(answer)


class BlocksOnOwnDisk:
    """Allocates ids from a counter on the broker's own disk; the counter is written before the first id of a block is used."""

    def __init__(self, shell: NodeShell) -> None:
        self._shell = shell

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Allocate the next block from the counter."""
        self._shell.tasks.spawn(self._count(on_answer), "producer-id-block")

    async def _count(self, on_answer: OnAnswer) -> None:
        world, broker_id = self._shell.world, self._shell.config.node_id
        try:
            counted = _parse_counter(world.disk.read(COUNTER_FILE)) if world.disk.exists(COUNTER_FILE) else 0
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
        on_answer(AllocateProducerIdsResponse(producer_id_start=block.first_producer_id, producer_id_len=block.size))


def _parse_counter(content: bytes) -> int:
    """Parse the counter file. Raises OSError if it is unreadable, because ids in use would be unknown."""
    text = content.strip()
    if not text.isdigit():
        raise OSError(f"{COUNTER_FILE} holds no number")
    return int(text)
