"""For any input a controller sends a response or closes the connection; it never stops or hangs."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from kraftsim.server.controller import Controller
from kraftsim.server.events_connections import RequestRefused
from protocol.api_keys import ApiKey
from protocol.codec.tree import layout_of
from protocol.errors import ErrorCode
from protocol.examples import example
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.k58_envelope import EnvelopeRequest
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest, Feature
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.registry import request_class, versions_of
from protocol.requests import request_chunks
from protocol.schema import Message
from protocol.uuids import METADATA_TOPIC_ID
from tests.node.conftest import MakeWorld
from tests.node.controllers import CLUSTER_ID, connected, running_controller

ROUNDS = 40
MESSAGES_A_ROUND = 12
FIRST_VERSION_WITH_TOPIC_ID = 13


async def talk(controller: Controller, frames: list[bytes]) -> None:
    """Send frames on a new connection and wait until the controller has no more to send."""
    address = controller.addresses["CONTROLLER"]
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"".join(frames))
    writer.write_eof()
    with suppress(ConnectionResetError):  # closed with unread bytes
        await asyncio.wait_for(reader.read(), 5)
    writer.close()
    assert not controller.shell.is_dead


def arbitrary_frames(controller: Controller, rng: Random) -> list[bytes]:
    """Requests of served APIs in served versions with random contents, some of them damaged."""
    frames = []
    for _ in range(MESSAGES_A_ROUND):
        api_key, (first, last) = rng.choice(list(controller.offer.served.items()))
        version = rng.randint(max(first, versions_of(api_key)[0]), last)
        body = example(layout_of(request_class(api_key), version), rng.randrange)
        make_plausible(body, version, rng)
        frame = bytearray(
            b"".join(request_chunks(api_key, version, rng.randrange(2**31), "fuzz", body))
        )
        if rng.random() < 0.3:
            frame[rng.randrange(4, len(frame))] ^= 1 << rng.randrange(8)
        frames.append(bytes(frame))
    return frames


def make_plausible(body: Message, version: int, rng: Random) -> None:
    """Adjust some fields so that the request passes the first checks half of the time, and never
    waits for long.
    """
    if isinstance(body, FetchRequest):
        body.max_wait_ms = min(body.max_wait_ms, 10)
    if not rng.randrange(2):
        return
    if isinstance(body, BrokerRegistrationRequest):
        body.cluster_id = CLUSTER_ID
        body.broker_id = rng.randrange(4)
        body.features = [
            Feature(name="metadata.version", min_supported_version=1, max_supported_version=21)
        ]
        body.log_dirs = [rng.randbytes(16)]
    elif isinstance(body, FetchRequest) and version >= FIRST_VERSION_WITH_TOPIC_ID:
        partition = FetchPartition(
            current_leader_epoch=1,
            fetch_offset=rng.randrange(9),
            last_fetched_epoch=rng.randrange(2),
        )
        body.cluster_id = None
        body.topics = [FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])]
    elif isinstance(body, BrokerHeartbeatRequest | AllocateProducerIdsRequest):
        body.broker_id = rng.randrange(4)
        body.broker_epoch = rng.randrange(5, 15)
    elif isinstance(body, EnvelopeRequest):
        inner = example(layout_of(CreateTopicsRequest, 7), rng.randrange)
        body.request_data = b"".join(request_chunks(ApiKey.CREATE_TOPICS, 7, 1, None, inner))[4:]


@pytest.mark.parametrize("seed", range(3))
async def test_random_requests_do_no_harm(make_world: MakeWorld, seed: int) -> None:
    """The controller still registers brokers and allocates blocks, and its log can be read back."""
    rng = Random(seed)
    async with running_controller(make_world()) as controller:
        for _ in range(ROUNDS):
            await talk(controller, arbitrary_frames(controller, rng))
        async with connected(controller.addresses["CONTROLLER"], 77) as broker:
            assert (await broker.register()).error_code == ErrorCode.NONE
            assert (await broker.allocate()).producer_id_len == 1000
        end_offset = controller.raft.log_end_offset
    async with running_controller(make_world()) as controller:
        assert controller.raft.log_end_offset == end_offset + 2, "a LeaderChange and a registration"


async def test_garbage_closes_the_connection_with_a_reason(make_world: MakeWorld) -> None:
    """Facts 6.1, 6.2: an invalid frame, an unknown API key, an unsupported version or a malformed
    body closes the connection without a response.
    """
    world = make_world()
    rubbish = {
        "negative size": b"\xff\xff\xff\xff",
        "too large": b"\x7f\xff\xff\xff",
        "unknown key": bytes.fromhex("0000000a 03e8 0000 00000001 ffff"),
        "a key of brokers": bytes.fromhex("0000000a 0003 0001 00000001 ffff"),
        "unknown version": bytes.fromhex("0000000b 0043 0009 00000001 ffff 00"),
        "a truncated body": bytes.fromhex("0000000e 0043 0000 00000001 ffff 00 000000"),
        "no header": bytes.fromhex("00000003 004300"),
    }
    async with running_controller(world) as controller:
        for frame in rubbish.values():
            await talk(controller, [frame])
    assert len(world.emitted_of(RequestRefused)) == len(rubbish)


async def test_request_too_large_for_one_batch_is_rejected(make_world: MakeWorld) -> None:
    """The records of a request form one batch, which followers must be able to fetch:
    RECORD_LIST_TOO_LARGE, and nothing is created.
    """
    async with (
        running_controller(make_world()) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        await broker.register()
        await broker.beat(broker.broker_epoch)
        configs = [
            CreatableTopicConfig(
                name="follower.replication.throttled.replicas", value=",".join(["1:1"] * 8000)
            )
        ]
        topics = [
            CreatableTopic(
                name=f"t{index}", num_partitions=1, replication_factor=1, configs=configs
            )
            for index in range(300)
        ]
        answer = await broker.ask(CreateTopicsRequest(topics=topics))
        assert [topic.error_code for topic in answer.topics] == [
            ErrorCode.RECORD_LIST_TOO_LARGE
        ] * 300
        assert controller.metadata_writer.state.replication.topic_id("t0") is None
        assert (await broker.allocate()).error_code == ErrorCode.NONE
