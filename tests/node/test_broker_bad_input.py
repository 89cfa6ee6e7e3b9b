"""Whatever bytes come, a broker answers as Kafka does or closes the connection: it never dies, hangs, or fails in a way nobody foresaw."""

import asyncio
import struct
from random import Random

import pytest

from kraftsim.events.connections import RequestRefused
from kraftsim.events.nodes import NodeFailed
from kraftsim.node.broker.handlers import k00_produce
from protocol.errors import ErrorCode
from protocol.examples import example
from protocol.malformed import MalformedMessage
from protocol.messages.k00_produce import ProduceRequest
from protocol.messages.k01_fetch import FetchRequest
from protocol.messages.k02_list_offsets import ListOffsetsRequest
from protocol.messages.registry import request_class
from protocol.requests import request_chunks
from protocol.resolve import layout_of
from protocol.schema import Message
from tests.node.brokers import BROKER_PORT, Client, Cluster, batch, running_cluster

FRAMES = 250


def pointed(body: Message, chance: Random) -> Message:
    """Let a request of arbitrary values ask for things that exist, more often than chance would."""
    if isinstance(body, ProduceRequest):
        body.acks = chance.choice([-1, 0, 1])
        for topic in body.topic_data:
            topic.name = chance.choice(["t", topic.name])
            for data in topic.partition_data:
                data.index = chance.choice([0, 1, -1])
                data.records = chance.choice([batch(chance.randint(1, 4)), chance.randbytes(80), b"", None])
    elif isinstance(body, FetchRequest):
        body.max_wait_ms = chance.choice([-1, 0, 20])
        for asked in body.topics:
            asked.topic = chance.choice(["t", asked.topic])
            for partition in asked.partitions:
                partition.partition, partition.fetch_offset = chance.choice([0, 1, -1]), chance.randint(-2, 5)
                partition.partition_max_bytes = chance.choice([-1, 0, 1, 1000, 2**31 - 1])
    elif isinstance(body, ListOffsetsRequest):
        for listed in body.topics:
            listed.name = chance.choice(["t", listed.name])
            for question in listed.partitions:
                question.partition_index, question.timestamp = chance.choice([0, 1, -1]), chance.randint(-7, 2)
    return body


def odd_frame(cluster: Cluster, chance: Random) -> bytes:
    """Build a frame: a valid request of any API and version, perhaps with some bytes changed, perhaps cut; or random bytes."""
    served = cluster.brokers["broker-1"].offer.served
    key = chance.choice(list(served))
    version = chance.randint(*served[key])
    body = pointed(example(layout_of(request_class(key), version), chance.randrange), chance)
    frame = bytearray(b"".join(request_chunks(key, version, chance.getrandbits(31), "odd", body)))
    match chance.randrange(4):
        case 1:
            for _ in range(chance.randint(1, 4)):
                frame[chance.randrange(8, len(frame))] = chance.randrange(256)
        case 2:
            size_bytes = chance.randrange(len(frame) - 4)
            frame = bytearray(struct.pack(">i", size_bytes)) + frame[4 : 4 + size_bytes]
        case 3:
            noise = chance.randbytes(chance.randrange(40))
            frame = bytearray(struct.pack(">i", len(noise)) + noise)
    return bytes(frame)


@pytest.mark.parametrize("seed", range(4))
def test_odd_frames_are_answered_or_refused(seed: int) -> None:
    """After each of them the broker serves others as before; every refusal has a reason that names the bytes."""
    chance = Random(seed)
    with running_cluster(seed=seed) as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t", partitions=2)
            await client.produce(batch(3))
            for _ in range(FRAMES):
                try:
                    frame = odd_frame(cluster, chance)
                except MalformedMessage:
                    continue  # values that no bytes can carry
                _, writer = await asyncio.open_connection("broker-1", BROKER_PORT)
                writer.write(frame)
                await asyncio.sleep(0.005)
                writer.close()
            assert await client.fresh_producer_id() >= 0
            assert (await client.produce(batch())).error_code == 0

        cluster.run(work, limit_s=600)
        assert cluster.noted(NodeFailed) == []
        reasons = [event.reason for event in cluster.noted(RequestRefused)]
        assert len(reasons) > FRAMES / 4
        assert [reason for reason in reasons if "the handler failed" in reason or not reason] == []


def test_an_examination_that_fails_by_surprise_costs_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a thread does for a handler fails as the handler would: with error -1, as an uncaught exception does in KafkaApis."""

    async def fails(*_: object) -> None:
        raise KeyError("unforeseen")

    monkeypatch.setattr(k00_produce, "must_be_examined", lambda broker, request, version: True)
    monkeypatch.setattr(k00_produce, "examine", fails)

    async def play(client: Client) -> None:
        await client.create_topic("examined")
        answer = await client.produce(batch(), topic="examined")
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        monkeypatch.undo()
        assert (await client.produce(batch(), topic="examined")).error_code == 0

    with running_cluster() as cluster:
        cluster.run(play)
        assert cluster.noted(NodeFailed) == []
