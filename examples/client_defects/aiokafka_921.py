"""aiokafka #921: records are in the output twice although their offsets were committed.

As in the ticket: one record per transaction, and a rebalance listener that seeks to the committed
offsets. The listener asks for them while a former owner's transaction is still open; aiokafka does
not ask for stable offsets, so it gets the one before that transaction, which commits afterwards.
aiokafka #844 has the cause, and the correction is the same: fence the former owner first.
"""

from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka_844 import GROUP, QUICK, Copier, consumer_of
from copied_once import OPTIONS, SINK, SOURCE, check

import kraftsim


class SeeksToCommitted(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """The listener of the ticket."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Do nothing: every record that was sent has its offset in the same transaction."""

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Continue after what is committed."""
        for place in assigned:
            self.consumer.seek(place, await self.consumer.committed(place) or 0)


async def copy(host: kraftsim.AppHost) -> None:
    """Copy record by record."""
    consumer = consumer_of(host)
    consumer.subscribe([SOURCE], listener=SeeksToCommitted(consumer))
    producer = AIOKafkaProducer(
        bootstrap_servers=host.bootstrap, transactional_id=f"copy-{host.name}", **QUICK
    )
    await producer.start()
    await consumer.start()
    async for record in consumer:
        async with producer.transaction():
            await producer.send_and_wait(SINK, record.value, record.key, record.partition)
            place = TopicPartition(record.topic, record.partition)
            await producer.send_offsets_to_transaction({place: record.offset + 1}, GROUP)


class RecordCopier(Copier):  # type: ignore[misc]  # as above
    """Corrected: a transactional id per input partition, and one record per transaction."""

    WORK_SECONDS = 0.0
    BATCH = 1


async def copy_corrected(host: kraftsim.AppHost) -> None:
    """The same with a transactional id per input partition."""
    await RecordCopier(host).run()


simulated: pytest.MarkDecorator = pytest.mark.kraftsim_simulation(**OPTIONS)


@simulated
async def test_as_reported(simulation: kraftsim.ApplicationRun) -> None:
    """The program of the ticket: fails."""
    await check(simulation, copy)


@simulated
async def test_corrected(simulation: kraftsim.ApplicationRun) -> None:
    """The corrected program: passes."""
    await check(simulation, copy_corrected)
