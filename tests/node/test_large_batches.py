"""Batches that take long to decompress are validated in a thread; clients see no other
difference.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from kraftsim.partitions.events import BatchAppended
from kraftsim.world.simulated.world import SimulatedWorld
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.record import Compression
from tests.node.brokers import Client, batch, running_cluster

T = TypeVar("T")

LARGE = 2 << 20


def produced(records: bytes, acks: int = -1) -> ProduceRequest:
    """Return a request with one batch."""
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )


@pytest.fixture
def aside(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where threads were used."""
    found: list[str] = []
    really = SimulatedWorld.aside

    async def counted(world: SimulatedWorld, work: Callable[[], T]) -> T:
        found.append(world.node)
        await asyncio.sleep(0.5)  # a thread may take long
        return await really(world, work)

    monkeypatch.setattr(SimulatedWorld, "aside", counted)
    return found


@pytest.mark.parametrize("codec", [each for each in Compression if each is not Compression.NONE])
def test_large_batch_is_appended_in_order(aside: list[str], codec: Compression) -> None:
    """The next request of the connection waits."""
    large, small = batch(3, value=bytes(LARGE), compression=codec), batch(2, compression=codec)

    async def two_in_flight(client: Client) -> list[ProduceResponse]:
        first = asyncio.ensure_future(client.ask(produced(large), 11))
        await asyncio.sleep(0)
        return [await first, await client.ask(produced(small), 11)]

    with running_cluster() as cluster:
        cluster.run(lambda client: client.create_topic("t", max_message_bytes=str(16 << 20)))
        answers = cluster.run(two_in_flight)
        rows = [answer.responses[0].partition_responses[0] for answer in answers]
        assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, 3)]
    assert aside == ["broker-1"], "the small batch is validated on the loop"


def test_large_acks_0_batch_is_appended_after_its_client_disconnected(aside: list[str]) -> None:
    """As a small one would be."""
    large = batch(1, value=bytes(LARGE), compression=Compression.GZIP)

    async def send_and_go(client: Client) -> None:
        client.connection.send(produced(large, acks=0), lambda answer: None)
        await asyncio.sleep(0.1)

    with running_cluster() as cluster:
        cluster.run(lambda client: client.create_topic("t"))
        cluster.run(send_and_go)
        cluster.simulation.run_until(
            lambda: any(each.topic == "t" for each in cluster.emitted(BatchAppended)), limit_s=10
        )
    assert aside == ["broker-1"]


def test_invalid_large_batch_is_rejected(aside: list[str]) -> None:
    """With the error that a small one gets."""
    large = bytearray(batch(1, value=bytes(LARGE), compression=Compression.GZIP))
    large[-20] ^= 0xFF

    with running_cluster() as cluster:
        cluster.run(lambda client: client.create_topic("t"))
        row = cluster.run(lambda client: client.produce(bytes(large)))
        assert (row.error_code, row.base_offset) == (2, -1)
