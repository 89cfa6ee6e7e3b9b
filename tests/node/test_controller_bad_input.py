"""Whatever comes in at a controller's listener: an answer or a closed connection, never a dead controller, never a hang."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from kraftsim.events.connections import RequestRefused
from kraftsim.node.controller.controller import Controller
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.examples import example
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.k58_envelope import EnvelopeRequest
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest, Feature
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.registry import request_class, versions_of
from protocol.requests import request_chunks
from protocol.resolve import layout_of
from protocol.schema import Message
from protocol.uuids import METADATA_TOPIC_ID
from tests.node.conftest import MakeWorld
from tests.node.controllers import CLUSTER_ID, connected, running_controller

ROUNDS = 40
MESSAGES_A_ROUND = 12
FIRST_VERSION_WITH_TOPIC_ID = 13


async def talk(controller: Controller, frames: list[bytes]) -> None:
    """Send frames on a connection of their own and wait until the controller has nothing more to say."""
    address = controller.addresses["CONTROLLER"]
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"".join(frames))
    writer.write_eof()
    with suppress(ConnectionResetError):  # closed while it had more to read
        await asyncio.wait_for(reader.read(), 5)
    writer.close()
    assert not controller.shell.is_dead


def arbitrary_frames(controller: Controller, chance: Random) -> list[bytes]:
    """Requests of served APIs in served versions with arbitrary contents, some of them damaged."""
    frames = []
    for _ in range(MESSAGES_A_ROUND):
        api_key, (first, last) = chance.choice(list(controller.offer.served.items()))
        version = chance.randint(max(first, versions_of(api_key)[0]), last)
        body = example(layout_of(request_class(api_key), version), chance.randrange)
        make_plausible(body, version, chance)
        frame = bytearray(b"".join(request_chunks(api_key, version, chance.randrange(2**31), "fuzz", body)))
        if chance.random() < 0.3:
            frame[chance.randrange(4, len(frame))] ^= 1 << chance.randrange(8)
        frames.append(bytes(frame))
    return frames


def make_plausible(body: Message, version: int, chance: Random) -> None:
    """Bend some fields so that the request gets past the first checks half of the time, and never waits for long."""
    if isinstance(body, FetchRequest):
        body.max_wait_ms = min(body.max_wait_ms, 10)
    if not chance.randrange(2):
        return
    if isinstance(body, BrokerRegistrationRequest):
        body.cluster_id = CLUSTER_ID
        body.broker_id = chance.randrange(4)
        body.features = [Feature(name="metadata.version", min_supported_version=1, max_supported_version=21)]
        body.log_dirs = [chance.randbytes(16)]
    elif isinstance(body, FetchRequest) and version >= FIRST_VERSION_WITH_TOPIC_ID:
        partition = FetchPartition(current_leader_epoch=1, fetch_offset=chance.randrange(9), last_fetched_epoch=chance.randrange(2))
        body.cluster_id = None
        body.topics = [FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])]
    elif isinstance(body, BrokerHeartbeatRequest | AllocateProducerIdsRequest):
        body.broker_id = chance.randrange(4)
        body.broker_epoch = chance.randrange(5, 15)
    elif isinstance(body, EnvelopeRequest):
        inner = example(layout_of(CreateTopicsRequest, 7), chance.randrange)
        body.request_data = b"".join(request_chunks(ApiKey.CREATE_TOPICS, 7, 1, None, inner))[4:]


@pytest.mark.parametrize("seed", range(3))
async def test_arbitrary_requests_do_no_harm(make_world: MakeWorld, seed: int) -> None:
    """The controller goes on: it still registers brokers and hands out blocks, and its log can be read back."""
    chance = Random(seed)
    async with running_controller(make_world()) as controller:
        for _ in range(ROUNDS):
            await talk(controller, arbitrary_frames(controller, chance))
        async with connected(controller.addresses["CONTROLLER"], 77) as broker:
            assert (await broker.register()).error_code == ErrorCode.NONE
            assert (await broker.allocate()).producer_id_len == 1000
        end_offset = controller.raft.log_end_offset
    async with running_controller(make_world()) as controller:
        assert controller.raft.log_end_offset == end_offset + 2, "a LeaderChange and a registration"


async def test_rubbish_closes_the_connection_and_says_why(make_world: MakeWorld) -> None:
    """Facts 6.1, 6.2: what is no frame, no known key, no offered version or no body ends the connection without an answer."""
    world = make_world()
    rubbish = {
        "negative size": b"\xff\xff\xff\xff",
        "too large": b"\x7f\xff\xff\xff",
        "unknown key": bytes.fromhex("0000000a 03e8 0000 00000001 ffff"),
        "a key of brokers": bytes.fromhex("0000000a 0003 0001 00000001 ffff"),
        "unknown version": bytes.fromhex("0000000b 0043 0009 00000001 ffff 00"),
        "a cut body": bytes.fromhex("0000000e 0043 0000 00000001 ffff 00 000000"),
        "no header": bytes.fromhex("00000003 004300"),
    }
    async with running_controller(world) as controller:
        for frame in rubbish.values():
            await talk(controller, [frame])
    assert len(world.noted_of(RequestRefused)) == len(rubbish)


async def test_a_request_that_no_batch_can_hold_is_refused(make_world: MakeWorld) -> None:
    """Records of one request go into one batch, and a batch is what a follower can fetch: RECORD_LIST_TOO_LARGE, and nothing is made."""
    async with running_controller(make_world()) as controller, connected(controller.addresses["CONTROLLER"]) as broker:
        await broker.register()
        await broker.beat(broker.broker_epoch)
        configs = [CreatableTopicConfig(name="follower.replication.throttled.replicas", value=",".join(["1:1"] * 8000))]
        topics = [CreatableTopic(name=f"t{index}", num_partitions=1, replication_factor=1, configs=configs) for index in range(300)]
        answer = await broker.ask(CreateTopicsRequest(topics=topics))
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.RECORD_LIST_TOO_LARGE] * 300
        assert controller.ledger.state.replication.topic_id("t0") is None
        assert (await broker.allocate()).error_code == ErrorCode.NONE
