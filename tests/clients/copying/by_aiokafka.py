"""Copies a topic exactly once with aiokafka: `by_aiokafka.py BOOTSTRAP GROUP INPUT OUTPUT TRANSACTIONAL_ID`, until SIGTERM.

aiokafka commits offsets without the member's generation, as all clients did before KIP-447. So each input partition has a producer of its own, whose
transactional id belongs to the partition: whoever gets the partition fences whoever had it, and only then asks where to go on.
A turn that does not end ends the process.
"""

import asyncio
import faulthandler
import signal
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

BATCH = 40
STUCK_SECONDS = 8
"""So long at most takes one turn; who sits in it longer says where, and dies."""
WHIM = 7


class Whim(Exception):
    """This transaction shall not be."""


class Copier(ConsumerRebalanceListener):
    """A consumer, and a producer for each partition that it has."""

    def __init__(self, bootstrap: str, group: str, source: str, sink: str, name: str) -> None:
        self.bootstrap, self.group, self.source, self.sink = bootstrap, group, source, sink
        self.producers: dict[TopicPartition, AIOKafkaProducer] = {}
        self.count = 0
        self.rebalances = 0
        self.is_over = asyncio.Event()
        self.is_copying = asyncio.Lock()
        """Held by a transaction, and by a rebalance, which must not take its producer away meanwhile."""
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

    async def on_partitions_revoked(self, revoked) -> None:  # type: ignore[no-untyped-def]
        """Let the producers of partitions go: what they have open, their successors abort."""
        async with self.is_copying:
            self.rebalances += 1
            for producer in self.producers.values():
                await producer.stop()
            self.producers.clear()

    async def on_partitions_assigned(self, assigned) -> None:  # type: ignore[no-untyped-def]
        """Fence whoever had a partition, then ask where its group goes on. What was read before that is read again."""
        producers = {}
        for place in sorted(assigned):
            name = f"{self.group}-{place.partition}"
            producers[place] = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap, transactional_id=name, transaction_timeout_ms=5000, retry_backoff_ms=50, metadata_max_age_ms=1000
            )
            await producers[place].start()
        async with self.is_copying:
            self.rebalances += 1
            self.producers.update(producers)
            await self.go_back()

    async def go_back(self) -> None:
        """Read on from where the group stands; no transaction may be under way."""
        for place, offset in (await self.committed(sorted(self.producers))).items():
            self.consumer.seek(place, max(offset, 0))

    async def committed(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask where the group stands: the consumer itself would tell what it was told before the fences stood."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            while places:
                try:
                    told = await admin.list_consumer_group_offsets(self.group, partitions=places)
                    return {place: told[place].offset for place in places}
                except (KafkaError, KeyError):
                    await asyncio.sleep(0.1)
        finally:
            await admin.close()
        return {}

    async def run(self) -> None:
        """Copy until it is over."""
        self.consumer.subscribe([self.source], listener=self)
        await self.consumer.start()
        while not self.is_over.is_set():
            faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
            rebalances = self.rebalances
            found = await self.consumer.getmany(timeout_ms=100, max_records=BATCH)
            async with self.is_copying:
                if found and (rebalances != self.rebalances or not found.keys() <= self.producers.keys()):
                    await self.go_back()  # a rebalance came or is under way: nobody knows from where this was read
                    continue
                for place, records in found.items():
                    await self.copy(place, records)
        await self.consumer.stop()
        await self.on_partitions_revoked(())

    async def copy(self, place, records) -> None:  # type: ignore[no-untyped-def]
        """Copy some records in one transaction; begin again with them if it fails."""
        producer = self.producers[place]
        self.count += 1
        try:
            async with producer.transaction():
                for record in records:
                    await producer.send(self.sink, record.value.upper(), record.key, record.partition)
                await producer.send_offsets_to_transaction({place: records[-1].offset + 1}, self.group)
                if self.count % WHIM == 0:
                    raise Whim
        except Whim:
            if place in self.consumer.assignment():
                self.consumer.seek(place, records[0].offset)
        except KafkaError as trouble:
            print("trouble", repr(trouble), file=sys.stderr, flush=True)
            raise SystemExit(2) from trouble


async def main() -> None:
    """Copy until SIGTERM."""
    copier = Copier(*sys.argv[1:])
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, copier.is_over.set)
    await copier.run()


if __name__ == "__main__":
    asyncio.run(main())
