"""aiokafka #844: a rebalance in mid-transaction lets two members commit the same input.

The program is that of aiokafka's documentation, with work of half a second inside the transaction,
as in the ticket. `send_offsets_to_transaction` names the group, but neither the member nor its
generation (aiokafka sends TxnOffsetCommit version 0): the coordinator cannot fence a member whose
partitions were assigned to another one meanwhile. Nor does aiokafka ask for stable offsets
(OffsetFetch up to version 3): the new owner starts from the offset before the open transaction.
Source: KIP-447.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from copied_once import OPTIONS, SINK, SOURCE, check

import kraftsim

GROUP = "copiers"
WORK_SECONDS = 0.5
QUICK: dict[str, Any] = {"metadata_max_age_ms": 2000}


def consumer_of(host: kraftsim.AppHost) -> Any:
    """Return a member of the group."""
    return AIOKafkaConsumer(
        bootstrap_servers=host.bootstrap,
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **QUICK,
    )


async def copy(host: kraftsim.AppHost) -> None:
    """Consume, transform and produce in transactions, as documented."""
    consumer = consumer_of(host)
    consumer.subscribe([SOURCE])
    producer = AIOKafkaProducer(
        bootstrap_servers=host.bootstrap, transactional_id=f"copy-{host.name}", **QUICK
    )
    await consumer.start()
    await producer.start()
    while True:
        batches = await consumer.getmany(timeout_ms=1000, max_records=10)
        if not batches:
            continue
        async with producer.transaction():
            for records in batches.values():
                for record in records:
                    await producer.send(SINK, record.value, record.key, record.partition)
            await asyncio.sleep(WORK_SECONDS)
            offsets = {place: records[-1].offset + 1 for place, records in batches.items()}
            await producer.send_offsets_to_transaction(offsets, GROUP)


# --------------------------------------------------------------------------------------------------
# Corrected: as clients before KIP-447 had to, with a transactional id per input partition. The new
# owner of a partition fences the former one, and only then reads the committed offset


class Copier(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """A consumer, and a producer for each assigned partition."""

    BATCH = 10
    WORK_SECONDS = WORK_SECONDS

    def __init__(self, host: kraftsim.AppHost) -> None:
        self.bootstrap = host.bootstrap
        self.consumer = consumer_of(host)
        self.producers: dict[TopicPartition, AIOKafkaProducer] = {}
        self.rebalances = 0
        self.lock = asyncio.Lock()
        """Held by a transaction, and by a rebalance, which must not close its producer."""

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Close the producers."""
        async with self.lock:
            self.rebalances += 1
            for producer in self.producers.values():
                await producer.stop()
            self.producers.clear()

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Fence the former owners, then seek to the committed offsets."""
        producers = {}
        for place in sorted(assigned):
            producers[place] = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                transactional_id=f"{GROUP}-{place.partition}",
                **QUICK,
            )
            await producers[place].start()
        async with self.lock:
            self.rebalances += 1
            self.producers.update(producers)
            await self.seek_to_committed()

    async def seek_to_committed(self) -> None:
        """Seek to what is committed, or to the beginning."""
        places = sorted(self.producers)
        if not places:
            return
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            committed = await admin.list_consumer_group_offsets(GROUP, partitions=places)
        finally:
            await admin.close()
        for place in places:
            self.consumer.seek(place, max(committed[place].offset, 0))

    async def run(self) -> None:
        """Copy, one transaction per partition."""
        self.consumer.subscribe([SOURCE], listener=self)
        await self.consumer.start()
        while True:
            rebalances = self.rebalances
            batches = await self.consumer.getmany(timeout_ms=1000, max_records=self.BATCH)
            async with self.lock:
                if rebalances != self.rebalances or not batches.keys() <= self.producers.keys():
                    if batches:  # of before the rebalance
                        await self.seek_to_committed()
                    continue
                for place, records in batches.items():
                    await self.copy(place, records)

    async def copy(self, place: TopicPartition, records: Sequence[Any]) -> None:
        """Copy records of one partition in one transaction; an error ends the process."""
        producer = self.producers[place]
        async with producer.transaction():
            for record in records:
                await producer.send(SINK, record.value, record.key, record.partition)
            await asyncio.sleep(self.WORK_SECONDS)
            await producer.send_offsets_to_transaction({place: records[-1].offset + 1}, GROUP)


async def copy_corrected(host: kraftsim.AppHost) -> None:
    """The same with a transactional id per input partition."""
    await Copier(host).run()


simulated: pytest.MarkDecorator = pytest.mark.kraftsim_simulation(**OPTIONS)


@simulated
async def test_as_reported(simulation: kraftsim.ApplicationRun) -> None:
    """The program of the ticket: fails."""
    await check(simulation, copy)


@simulated
async def test_corrected(simulation: kraftsim.ApplicationRun) -> None:
    """The corrected program: passes."""
    await check(simulation, copy_corrected)
