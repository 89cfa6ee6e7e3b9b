"""Large requests of many clients share the loop: one slice per turn, so that the latency of other
clients does not grow with their number.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from kraftsim.server.api_offer import ApiOffer
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.config import NodeConfig
from kraftsim.server.dispatch import Dispatcher
from kraftsim.server.listeners import Listeners
from kraftsim.server.shell import NodeShell
from kraftsim.server.slices import Slices, Turns
from protocol.api_keys import ApiKey
from protocol.messages.k15_describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol.requests import decode_response, request_chunks
from tests.node.conftest import MakeWorld
from tests.node.test_connection import PROPERTIES, Client

CLIENTS = 12
NAMES = [f"a-group-with-a-name-{number}" for number in range(3_000)]
SLICES_OF_ONE = 6


class Ticks:
    """Counts the turns of the running loop."""

    def __init__(self) -> None:
        self.number = 0
        self.sliced: Counter[int] = Counter()
        """Turn -> number of slices served in it."""
        self._tick()

    def _tick(self) -> None:
        self.number += 1
        asyncio.get_running_loop().call_soon(self._tick)


def describe(ticks: list[Ticks], call: Call) -> Answer:
    """Serve a slice, and count it."""
    ticks[0].sliced[ticks[0].number] += 1
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=name) for name in call.body.groups]
    )


@pytest.fixture
async def listening(make_world: MakeWorld) -> AsyncIterator[tuple[list[Ticks], int]]:
    """A node that describes groups slice by slice, and its address."""
    world, config, ticks = make_world(), NodeConfig.parse(PROPERTIES), [Ticks()]
    shell = NodeShell(world, config, lambda: listeners.abort())
    handler = Handler(
        key=ApiKey.DESCRIBE_GROUPS, handle=describe, slices=Slices(entries="groups", rows="groups")
    )
    listeners = Listeners(shell)
    await listeners.open(
        config.listeners,
        Dispatcher(ticks, [handler], ApiOffer({handler.key: (0, 5)}, [handler.key], {})),
    )
    yield ticks, listeners.bound["PLAINTEXT"].port
    await listeners.close()


async def test_large_requests_of_many_clients_are_served_one_slice_per_turn(
    listening: tuple[list[Ticks], int],
) -> None:
    """A socket is polled once per turn: a client with a small request waits for all the work of one
    turn.
    """
    ticks, port = listening
    frame = b"".join(request_chunks(15, 5, 7, "client", DescribeGroupsRequest(groups=NAMES)))
    clients = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(CLIENTS)]
    for client in clients:
        client.send(frame)
    for client in clients:
        _, answer = decode_response(15, 5, await client.frame())
        assert [group.group_id for group in answer.groups] == NAMES
        client.writer.close()
    assert ticks[0].sliced.total() == CLIENTS * SLICES_OF_ONE
    assert max(ticks[0].sliced.values()) == 1


async def test_turns_are_granted_in_request_order() -> None:
    turns, taken = Turns(), []

    async def work(name: str) -> None:
        for _ in range(3):
            await turns.next()
            taken.append(name)

    await asyncio.gather(*(work(name) for name in "abc"))
    assert "".join(taken) == "abcabcabc"


async def test_cancelled_task_passes_its_turn_to_the_next() -> None:
    turns = Turns()
    first, second = (asyncio.ensure_future(turns.next()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(1):
        await second
    assert first.cancelled()
