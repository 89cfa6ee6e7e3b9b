"""Ways to blocks of producer ids that KIP-730's text speaks of, beside the shipped one, which is the channel that brokers forward requests on.

| name | what it does | the text |
|---|---|---|
| `own-channel` | asks over a connection of its own | the shared one gives no promise of low or steady delay |
| `numbered` | numbers requests, so that a controller can tell one that comes again | rejected: an idempotent RPC |
| `after-replay` | uses a block when its record is in this broker's copy of the log | rejected: the answer is enough |
| `own-disk` | asks nobody: the broker's id in the high bits, a counter on its disk | rejected: uncoordinated ids |

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
"""How many ids this broker has counted so far, as text. A broker that loses its disk begins at none."""
LOOK_SECONDS: Final = 0.005
NO_OFFSET = NO_BROKER_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the ways need: the node, the shipped way, a new channel to the controller, and the first id that the copied log says is nobody's yet."""

    shell: NodeShell
    shared: BlockChannel
    new_channel: Callable[[str], BlockChannel]
    copied_until: Callable[[], int]


def block_channel(config: NodeConfig, around: Surroundings) -> BlockChannel:
    """Return the way that `kraftsim.producer.id.blocks` names."""
    match config.producer_id_blocks:
        case "own-channel":
            return around.new_channel("producer-ids")
        case "numbered":
            return NumberedRequests(around.shared)
        case "after-replay":
            return BlocksAfterReplay(around.shell, around.shared, around.copied_until)
        case "own-disk":
            return BlocksOnOwnDisk(around.shell)
        case _:
            return around.shared


class NumberedRequests:
    """Numbers requests from 1 on. What the channel sends again has the number that it had."""

    def __init__(self, shared: BlockChannel) -> None:
        self._shared = shared
        self._count = 0

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Ask, with the next number."""
        assert isinstance(body, AllocateProducerIdsRequest), "nothing else is asked here"
        self._count += 1
        self._shared.send(numbered(body, self._count), on_answer)


class BlocksAfterReplay:
    """Hands an answer on when the record of its block has been copied."""

    def __init__(self, shell: NodeShell, shared: BlockChannel, copied_until: Callable[[], int]) -> None:
        self._shell = shell
        self._shared = shared
        self._copied_until = copied_until

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Ask, and wait for the record behind the answer."""

        def on_block(answer: Message | OSError) -> None:
            if isinstance(answer, AllocateProducerIdsResponse) and answer.error_code == ErrorCode.NONE:
                self._shell.tasks.spawn(self._hand_on(answer, on_answer), "producer-id-block")
            else:
                on_answer(answer)

        self._shared.send(body, on_block)

    async def _hand_on(self, answer: AllocateProducerIdsResponse, on_answer: OnAnswer) -> None:
        while self._copied_until() < answer.producer_id_start + answer.producer_id_len:
            await asyncio.sleep(LOOK_SECONDS)
        on_answer(answer)


class BlocksOnOwnDisk:
    """Counts ids on the broker's own disk: written down as used before the first of them is."""

    def __init__(self, shell: NodeShell) -> None:
        self._shell = shell

    def send(self, body: Message, on_answer: OnAnswer) -> None:
        """Count the next block."""
        self._shell.tasks.spawn(self._count(on_answer), "producer-id-block")

    async def _count(self, on_answer: OnAnswer) -> None:
        world, broker_id = self._shell.world, self._shell.config.node_id
        try:
            counted = _counted(world.disk.read(COUNTER_FILE)) if world.disk.exists(COUNTER_FILE) else 0
            block = own_block(broker_id, counted)
            if isinstance(block, Refusal):
                on_answer(AllocateProducerIdsResponse(error_code=block.error))
                return
            await world.disk.replace(COUNTER_FILE, b"%d\n" % (counted + block.size))
        except OSError as refused:
            self._shell.lose_disk(COUNTER_FILE, "count", refused)
            return
        world.note(
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


def _counted(content: bytes) -> int:
    """Parse the file. Raises OSError: what cannot be read may hide ids that are in use."""
    text = content.strip()
    if not text.isdigit():
        raise OSError(f"{COUNTER_FILE} holds no number")
    return int(text)
