"""For any bytes a broker answers as Kafka does or closes the connection: it never stops, hangs, or
fails unexpectedly.
"""

import asyncio
import struct
from random import Random

import pytest

from kraftsim.partitions.broker_handlers import k00_produce
from kraftsim.server.events import NodeFailed
from kraftsim.server.events_connections import RequestRefused
from protocol.codec.tree import layout_of
from protocol.errors import ErrorCode
from protocol.examples import example
from protocol.malformed import MalformedMessage
from protocol.messages.k00_produce import ProduceRequest
from protocol.messages.k01_fetch import FetchRequest
from protocol.messages.k02_list_offsets import ListOffsetsRequest
from protocol.messages.registry import request_class
from protocol.requests import request_chunks
from protocol.schema import Message
from tests.node.brokers import BROKER_PORT, Client, Cluster, batch, running_cluster

FRAMES = 250


def pointed(body: Message, rng: Random) -> Message:
    """Make a random request name existing entities more often than by coincidence."""
    if isinstance(body, ProduceRequest):
        body.acks = rng.choice([-1, 0, 1])
        for topic in body.topic_data:
            topic.name = rng.choice(["t", topic.name])
            for data in topic.partition_data:
                data.index = rng.choice([0, 1, -1])
                data.records = rng.choice([batch(rng.randint(1, 4)), rng.randbytes(80), b"", None])
    elif isinstance(body, FetchRequest):
        body.max_wait_ms = rng.choice([-1, 0, 20])
        for asked in body.topics:
            asked.topic = rng.choice(["t", asked.topic])
            for partition in asked.partitions:
                partition.partition, partition.fetch_offset = (
                    rng.choice([0, 1, -1]),
                    rng.randint(-2, 5),
                )
                partition.partition_max_bytes = rng.choice([-1, 0, 1, 1000, 2**31 - 1])
    elif isinstance(body, ListOffsetsRequest):
        for listed in body.topics:
            listed.name = rng.choice(["t", listed.name])
            for question in listed.partitions:
                question.partition_index, question.timestamp = (
                    rng.choice([0, 1, -1]),
                    rng.randint(-7, 2),
                )
    return body


def odd_frame(cluster: Cluster, rng: Random) -> bytes:
    """Build a frame: a valid request of any API and version, perhaps with some bytes changed,
    perhaps truncated; or random bytes.
    """
    served = cluster.brokers["broker-1"].offer.served
    key = rng.choice(list(served))
    version = rng.randint(*served[key])
    body = pointed(example(layout_of(request_class(key), version), rng.randrange), rng)
    frame = bytearray(b"".join(request_chunks(key, version, rng.getrandbits(31), "odd", body)))
    match rng.randrange(4):
        case 1:
            for _ in range(rng.randint(1, 4)):
                frame[rng.randrange(8, len(frame))] = rng.randrange(256)
        case 2:
            size_bytes = rng.randrange(len(frame) - 4)
            frame = bytearray(struct.pack(">i", size_bytes)) + frame[4 : 4 + size_bytes]
        case 3:
            noise = rng.randbytes(rng.randrange(40))
            frame = bytearray(struct.pack(">i", len(noise)) + noise)
    return bytes(frame)


@pytest.mark.parametrize("seed", range(4))
def test_malformed_frames_are_answered_or_close_the_connection(seed: int) -> None:
    """After each of them the broker still serves others; every rejection has a reason that names
    the bytes.
    """
    rng = Random(seed)
    with running_cluster(seed=seed) as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t", partitions=2)
            await client.produce(batch(3))
            for _ in range(FRAMES):
                try:
                    frame = odd_frame(cluster, rng)
                except MalformedMessage:
                    continue  # values that no bytes can represent
                _, writer = await asyncio.open_connection("broker-1", BROKER_PORT)
                writer.write(frame)
                await asyncio.sleep(0.005)
                writer.close()
            assert await client.fresh_producer_id() >= 0
            assert (await client.produce(batch())).error_code == 0

        cluster.run(work, limit_s=600)
        assert cluster.emitted(NodeFailed) == []
        reasons = [event.reason for event in cluster.emitted(RequestRefused)]
        assert len(reasons) > FRAMES / 4
        assert [reason for reason in reasons if "the handler failed" in reason or not reason] == []


def test_exception_in_a_validation_thread_fails_only_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Work that a thread does for a handler fails like the handler: with error -1, as an uncaught
    exception does in KafkaApis.
    """

    async def fails(*_: object) -> None:
        raise KeyError("unforeseen")

    monkeypatch.setattr(k00_produce, "must_validate_aside", lambda broker, request, version: True)
    monkeypatch.setattr(k00_produce, "validate_records", fails)

    async def run(client: Client) -> None:
        await client.create_topic("examined")
        answer = await client.produce(batch(), topic="examined")
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        monkeypatch.undo()
        assert (await client.produce(batch(), topic="examined")).error_code == 0

    with running_cluster() as cluster:
        cluster.run(run)
        assert cluster.emitted(NodeFailed) == []
