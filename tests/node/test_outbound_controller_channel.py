"""A broker's channel to the controller: whoever sends sees an answer of the real controller, or that none came in time."""

import asyncio
from typing import Any

import pytest

from kraftsim.node.config import NodeConfig
from kraftsim.node.controller_channel import ControllerChannel, ControllerFinder
from kraftsim.node.endpoints import Voter
from kraftsim.node.outbound import NoCommonVersion, RequestTimedOut
from kraftsim.node.shell import NodeShell
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.requests import RequestHead
from protocol.schema import Message
from tests.node.conftest import MakeWorld
from tests.node.scripted_peer import Answering, Silence, scripted_peer

OFFERS = {ApiKey.API_VERSIONS: (0, 4), ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0)}


def shell_of_broker(world: World, *ports: int) -> NodeShell:
    """The frame of a broker whose quorum has a voter on each port."""
    config = NodeConfig.parse(
        {
            "process.roles": "broker",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{101 + index}@127.0.0.1:{port}" for index, port in enumerate(ports)),
        }
    )
    return NodeShell(world, config, lambda: None)


def ask(epoch: int) -> AllocateProducerIdsRequest:
    return AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)


def serve(head: RequestHead, body: Any) -> Message:
    """Answer with the epoch that was sent, so that answers can be told apart."""
    return AllocateProducerIdsResponse(producer_id_start=body.broker_epoch)


def not_controller(head: RequestHead, body: Any) -> Message:
    return AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)


def close(head: RequestHead, body: Any) -> Silence:
    return Silence.CLOSE


def silence(head: RequestHead, body: Any) -> Silence:
    return Silence.SAY_NOTHING


async def test_one_request_is_in_flight_and_the_order_is_kept(make_world: MakeWorld) -> None:
    """max.in.flight is 1 on this channel."""
    most_at_once = 0

    def count(head: RequestHead, body: Any) -> Message:
        nonlocal most_at_once
        most_at_once = max(most_at_once, len(peer.heads) - len(answered))
        return serve(head, body)

    answered: list[int] = []
    async with scripted_peer(count, OFFERS) as peer:
        shell = shell_of_broker(make_world(), peer.port)
        channel = ControllerChannel(shell, name="forwarding")
        futures = [channel.request(ask(epoch)) for epoch in range(5)]
        for future in futures:
            answered.append((await future).producer_id_start)
        assert answered == [0, 1, 2, 3, 4]
        assert most_at_once == 1
        assert [head.client_id for head in peer.heads] == ["1"] * 5
        await shell.tasks.join()
        channel.close()


@pytest.mark.parametrize("first_voter", [not_controller, close])
async def test_the_next_voter_is_asked_when_the_first_is_not_the_controller(make_world: MakeWorld, first_voter: Answering) -> None:
    """The request goes back to the head of the queue: nothing overtakes it, and nobody sees NOT_CONTROLLER."""
    async with scripted_peer(first_voter, OFFERS) as wrong, scripted_peer(serve, OFFERS) as right:
        shell = shell_of_broker(make_world(), wrong.port, right.port)
        channel = ControllerChannel(shell, name="forwarding")
        answers = await asyncio.gather(*(channel.request(ask(epoch)) for epoch in range(3)))
        assert [answer.producer_id_start for answer in answers] == [0, 1, 2]
        assert [body.broker_epoch for body in wrong.bodies] == [0]
        assert [body.broker_epoch for body in right.bodies] == [0, 1, 2]
        await shell.tasks.join()
        channel.close()


async def test_a_controller_that_is_not_there_yet_is_waited_for(make_world: MakeWorld) -> None:
    """Connection refused is no answer: try again every 50 ms."""
    async with scripted_peer(serve, OFFERS) as peer:
        port = peer.port
    shell = shell_of_broker(make_world(), port)
    channel = ControllerChannel(shell, name="forwarding")
    future = channel.request(ask(7))
    await asyncio.sleep(0.12)
    assert not future.done()
    async with scripted_peer(serve, OFFERS, port=port):
        assert (await asyncio.wait_for(future, 2)).producer_id_start == 7
        await shell.tasks.join()
        channel.close()


@pytest.mark.parametrize("answer", [silence, not_controller])
async def test_a_request_is_given_up_after_the_retry_timeout(make_world: MakeWorld, answer: Answering) -> None:
    """Then whoever sent it hears so, and the next one has its own time."""
    async with scripted_peer(answer, OFFERS) as peer:
        shell = shell_of_broker(make_world(), peer.port)
        channel = ControllerChannel(shell, name="heartbeat", retry_timeout_ms=120)
        with pytest.raises(RequestTimedOut, match="120 ms"):
            await asyncio.wait_for(channel.request(ask(1)), 2)
        peer.answer = serve
        assert (await asyncio.wait_for(channel.request(ask(2)), 2)).producer_id_start == 2
        await shell.tasks.join()
        channel.close()


async def test_an_api_that_the_controller_does_not_know_is_answered_so(make_world: MakeWorld) -> None:
    """A version mismatch heals by no retry."""
    async with scripted_peer(serve, {ApiKey.API_VERSIONS: (0, 4)}) as peer:
        shell = shell_of_broker(make_world(), peer.port)
        channel = ControllerChannel(shell, name="forwarding")
        with pytest.raises(NoCommonVersion):
            await channel.request(ask(1))
        await shell.tasks.join()
        channel.close()


def test_the_finder_turns_to_whom_it_is_told() -> None:
    """A leader id from a Fetch answer wins; forgetting somebody else's mistake twice does not skip a voter."""
    one, two, three = voters = tuple(Voter(node_id, "h", node_id) for node_id in (1, 2, 3))
    finder = ControllerFinder(voters)
    assert finder.current() == one
    finder.forget(one)
    finder.forget(one)
    assert finder.current() == two
    finder.learned(3)
    finder.learned(99)
    assert finder.current() == three
    finder.forget(three)
    assert finder.current() == one
