"""Consume-transform-produce app with aiokafka: `by_aiokafka.py BOOTSTRAP GROUP INPUT OUTPUT
TRANSACTIONAL_ID`, until SIGTERM.

aiokafka commits offsets without the member's generation, as all clients did before KIP-447. So each
input partition has its own producer, with a transactional id per partition: the new owner of a
partition fences the previous one, and only then fetches the committed offset. A transaction that
hangs ends the process.
"""

import asyncio
import faulthandler
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

BATCH = 40
STUCK_SECONDS = 8
"""The maximum duration of one transaction; a process that exceeds it prints its stack and exits."""
WHIM = 7


class DeliberateAbort(Exception):
    """The transaction is to be aborted."""


class TransformWorker(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """A consumer, and a producer for each assigned partition."""

    def __init__(self, bootstrap: str, group: str, source: str, sink: str, name: str) -> None:
        self.bootstrap, self.group, self.source, self.sink = bootstrap, group, source, sink
        self.producers: dict[TopicPartition, AIOKafkaProducer] = {}
        self.count = 0
        self.rebalances = 0
        self.is_over = asyncio.Event()
        self.in_transaction = asyncio.Lock()
        """Held by a transaction, and by a rebalance, which must not close the producer during a
        transaction.
        """
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=2500,
            heartbeat_interval_ms=300,
            metadata_max_age_ms=1000,
            retry_backoff_ms=50,
        )

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Close the producers of partitions: their successors abort open transactions."""
        async with self.in_transaction:
            self.rebalances += 1
            for producer in self.producers.values():
                await producer.stop()
            self.producers.clear()

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Fence the previous owner of a partition, then fetch the committed offset of the group.

        Records fetched before that are read again.
        """
        producers = {}
        for place in sorted(assigned):
            name = f"{self.group}-{place.partition}"
            producers[place] = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                transactional_id=name,
                transaction_timeout_ms=5000,
                retry_backoff_ms=50,
                metadata_max_age_ms=1000,
            )
            await producers[place].start()
        async with self.in_transaction:
            self.rebalances += 1
            self.producers.update(producers)
            await self.seek_to_committed()

    async def seek_to_committed(self) -> None:
        """Seek to the committed offsets of the group; no transaction may be open."""
        for place, offset in (await self.committed(sorted(self.producers))).items():
            self.consumer.seek(place, max(offset, 0))

    async def committed(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Fetch the committed offsets from the coordinator: the consumer would return offsets
        cached before the previous owners were fenced.
        """
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            while places:
                try:
                    offsets = await admin.list_consumer_group_offsets(self.group, partitions=places)
                    return {place: offsets[place].offset for place in places}
                except (KafkaError, KeyError):
                    await asyncio.sleep(0.1)
        finally:
            await admin.close()
        return {}

    async def run(self) -> None:
        """Run until it is stopped."""
        self.consumer.subscribe([self.source], listener=self)
        await self.consumer.start()
        while not self.is_over.is_set():
            faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
            rebalances = self.rebalances
            found = await self.consumer.getmany(timeout_ms=100, max_records=BATCH)
            async with self.in_transaction:
                if found and (
                    rebalances != self.rebalances or not found.keys() <= self.producers.keys()
                ):
                    # a rebalance happened or is in progress: the start position of these records is
                    # unknown
                    await self.seek_to_committed()
                    continue
                for place, records in found.items():
                    await self.copy(place, records)
        await self.consumer.stop()
        await self.on_partitions_revoked(())

    async def copy(self, place: Any, records: Sequence[Any]) -> None:
        """Process some records in one transaction; read them again if it fails."""
        producer = self.producers[place]
        self.count += 1
        try:
            async with producer.transaction():
                for record in records:
                    await producer.send(
                        self.sink, record.value.upper(), record.key, record.partition
                    )
                await producer.send_offsets_to_transaction(
                    {place: records[-1].offset + 1}, self.group
                )
                if self.count % WHIM == 0:
                    raise DeliberateAbort
        except DeliberateAbort:
            if place in self.consumer.assignment():
                self.consumer.seek(place, records[0].offset)
        except KafkaError as trouble:
            print("trouble", repr(trouble), file=sys.stderr, flush=True)
            raise SystemExit(2) from trouble


async def main() -> None:
    """Run until SIGTERM."""
    worker = TransformWorker(*sys.argv[1:])
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.is_over.set)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
