"""A broker's channel to the controller: the caller receives a response of the active controller, or
a timeout.
"""

import asyncio
from typing import Any

import pytest

from kraftsim.raft.rules_voters import Address
from kraftsim.server.config import NodeConfig
from kraftsim.server.controller_channel import ActiveController, ControllerChannel
from kraftsim.server.outbound import NoCommonVersion, RequestTimedOut
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from protocol.requests import RequestHead
from protocol.schema import Message
from tests.node.conftest import MakeWorld
from tests.node.scripted_peer import Answering, Silence, scripted_peer

OFFERS = {ApiKey.API_VERSIONS: (0, 4), ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0)}


def shell_of_broker(world: World) -> NodeShell:
    """The parts of a broker that the channel uses."""
    config = NodeConfig.parse(
        {
            "process.roles": "broker",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "101@127.0.0.1:9193",
        }
    )
    return NodeShell(world, config, lambda: None)


def leading_at(port: int | None) -> ActiveController:
    """The leader as given by the metadata log."""
    controller = ActiveController()
    controller.learned(None if port is None else Address("127.0.0.1", port))
    return controller


def ask(epoch: int) -> AllocateProducerIdsRequest:
    return AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)


def serve(head: RequestHead, body: Any) -> Message:
    """Answer with the received epoch, so that responses are distinguishable."""
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
        shell = shell_of_broker(make_world())
        channel = ControllerChannel(shell, name="forwarding", controller=leading_at(peer.port))
        futures = [channel.request(ask(epoch)) for epoch in range(5)]
        for future in futures:
            answered.append((await future).producer_id_start)
        assert answered == [0, 1, 2, 3, 4]
        assert most_at_once == 1
        assert [head.client_id for head in peer.heads] == ["1"] * 5
        await shell.tasks.join()
        channel.close()


async def turns() -> None:
    """Run the loop 24 times in 0.12 s or more: long enough for two retries, and for a busy machine
    to deliver what was sent.
    """
    for _ in range(24):
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("former_leader", [not_controller, close])
async def test_request_is_retried_at_the_new_controller(
    make_world: MakeWorld, former_leader: Answering
) -> None:
    """It returns to the front of the queue: nothing overtakes it, and the caller never sees
    NOT_CONTROLLER.
    """
    async with scripted_peer(former_leader, OFFERS) as wrong, scripted_peer(serve, OFFERS) as right:
        shell, controller = shell_of_broker(make_world()), leading_at(wrong.port)
        channel = ControllerChannel(shell, name="forwarding", controller=controller)
        answers = asyncio.gather(*(channel.request(ask(epoch)) for epoch in range(3)))
        while not wrong.bodies:
            await asyncio.sleep(0.01)
        controller.learned(None)
        await turns()  # one request may be in flight
        asked_so_far = len(wrong.bodies)
        await turns()
        assert len(wrong.bodies) == asked_so_far, "no request is sent without a known leader"
        controller.learned(Address("127.0.0.1", right.port))
        assert [answer.producer_id_start for answer in await answers] == [0, 1, 2]
        assert {body.broker_epoch for body in wrong.bodies} == {0}
        assert [body.broker_epoch for body in right.bodies] == [0, 1, 2]
        await shell.tasks.join()
        channel.close()


async def test_request_times_out_without_a_known_controller(make_world: MakeWorld) -> None:
    """The timeout of a request runs from when it was sent, with or without a controller."""
    async with scripted_peer(serve, OFFERS) as peer:
        shell, controller = shell_of_broker(make_world()), leading_at(None)
        channel = ControllerChannel(
            shell, name="heartbeat", controller=controller, retry_timeout_ms=120
        )
        with pytest.raises(RequestTimedOut, match="120 ms"):
            await asyncio.wait_for(channel.request(ask(1)), 2)
        waiting = channel.request(ask(2))
        controller.learned(Address("127.0.0.1", peer.port))
        assert (await asyncio.wait_for(waiting, 2)).producer_id_start == 2
        await shell.tasks.join()
        channel.close()


async def test_unreachable_controller_is_retried(make_world: MakeWorld) -> None:
    """Connection refused: retry every 50 ms."""
    async with scripted_peer(serve, OFFERS) as peer:
        port = peer.port
    shell = shell_of_broker(make_world())
    channel = ControllerChannel(shell, name="forwarding", controller=leading_at(port))
    future = channel.request(ask(7))
    await asyncio.sleep(0.12)
    assert not future.done()
    async with scripted_peer(serve, OFFERS, port=port):
        assert (await asyncio.wait_for(future, 2)).producer_id_start == 7
        await shell.tasks.join()
        channel.close()


@pytest.mark.parametrize("answer", [silence, not_controller])
async def test_request_fails_after_the_retry_timeout(
    make_world: MakeWorld, answer: Answering
) -> None:
    """Then its caller is notified, and the next one has its own timeout."""
    async with scripted_peer(answer, OFFERS) as peer:
        shell = shell_of_broker(make_world())
        channel = ControllerChannel(
            shell, name="heartbeat", controller=leading_at(peer.port), retry_timeout_ms=120
        )
        with pytest.raises(RequestTimedOut, match="120 ms"):
            await asyncio.wait_for(channel.request(ask(1)), 2)
        peer.answer = serve
        assert (await asyncio.wait_for(channel.request(ask(2)), 2)).producer_id_start == 2
        await shell.tasks.join()
        channel.close()


async def test_api_unsupported_by_the_controller_is_reported(make_world: MakeWorld) -> None:
    """Retries do not help with a version mismatch."""
    async with scripted_peer(serve, {ApiKey.API_VERSIONS: (0, 4)}) as peer:
        shell = shell_of_broker(make_world())
        channel = ControllerChannel(shell, name="forwarding", controller=leading_at(peer.port))
        with pytest.raises(NoCommonVersion):
            await channel.request(ask(1))
        await shell.tasks.join()
        channel.close()
