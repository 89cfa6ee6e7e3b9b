"""aiokafka of any release: `by_aiokafka.py BOOTSTRAP NAME PATIENCE_MS`."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
from lines import EACH, TRANSACTIONS, Failed, serve

BOOTSTRAP, NAME = sys.argv[1], sys.argv[2]
PATIENCE_SECONDS = int(sys.argv[3]) / 1000
BOTH = {
    "bootstrap_servers": BOOTSTRAP,
    "client_id": NAME,
    "retry_backoff_ms": 50,
    "request_timeout_ms": 10_000,
}


@asynccontextmanager
async def producer(identity: str | None = None) -> AsyncIterator[aiokafka.AIOKafkaProducer]:
    """A producer that has started."""
    writer = aiokafka.AIOKafkaProducer(**BOTH, enable_idempotence=True, transactional_id=identity)
    try:
        await writer.start()
        yield writer
    finally:
        await writer.stop()


@asynccontextmanager
async def consumer(
    *topics: str, group: str | None = None
) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
    """A consumer that has started."""
    own = {
        "isolation_level": "read_committed",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
    }
    reader = aiokafka.AIOKafkaConsumer(*topics, **BOTH, **own, group_id=group)
    try:
        await reader.start()
        yield reader
    finally:
        await reader.stop()


async def take(reader: aiokafka.AIOKafkaConsumer, count: int) -> list[Any]:
    """Read this many records, and check once more whether there are too many."""
    found: list[Any] = []
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        if time.monotonic() > give_up_at:
            raise Failed("KafkaTimeoutError", f"{len(found)} of {count} records were read")
        found += [
            record
            for records in (await reader.getmany(timeout_ms=100)).values()
            for record in records
        ]
    return found + [
        record for records in (await reader.getmany(timeout_ms=300)).values() for record in records
    ]


def values(found: list[Any]) -> str:
    """Return partition:value of each."""
    return " ".join(f"{record.partition}:{record.value.decode()}" for record in found)


def next_offsets(found: list[Any]) -> dict[Any, Any]:
    """Return the next offsets."""
    return {aiokafka.TopicPartition(each.topic, each.partition): each.offset + 1 for each in found}


async def produce(topic: str, partitions: str, count: str) -> None:
    async with producer() as writer:
        for number in range(int(count)):
            await writer.send(
                topic, b"value-%d" % number, b"key-%d" % number, number % int(partitions)
            )
        await writer.flush()


async def transact(topic: str, partitions: str, identity: str) -> None:
    async with producer(identity) as writer:
        for name in TRANSACTIONS:
            await writer.begin_transaction()
            for number in range(EACH):
                await writer.send_and_wait(
                    topic,
                    b"%s%d" % (name.encode(), number),
                    b"key-%d" % number,
                    number % int(partitions),
                )
            await (
                writer.abort_transaction() if name == "aborted-" else writer.commit_transaction()
            )


async def read(topic: str, partitions: str, count: str) -> str:
    async with consumer() as reader:
        places = [aiokafka.TopicPartition(topic, number) for number in range(int(partitions))]
        reader.assign(places)
        await reader.seek_to_beginning(*places)
        return values(await take(reader, int(count)))


async def group(topic: str, name: str, count: str) -> str:
    async with consumer(topic, group=name) as reader:
        found = await take(reader, int(count))
        if found:
            await reader.commit(next_offsets(found))
        return values(found)


async def copy(source: str, sink: str, name: str, identity: str, count: str) -> None:
    async with producer(identity) as writer, consumer(source, group=name) as reader:
        found = await take(reader, int(count))
        for is_committed in (False, True):
            await writer.begin_transaction()
            for record in found:
                await writer.send(sink, record.value, record.key, record.partition)
            await writer.send_offsets_to_transaction(next_offsets(found), name)
            await (writer.commit_transaction() if is_committed else writer.abort_transaction())


def by_itself(work: Callable[..., Coroutine[object, object, object]]) -> Callable[..., object]:
    """Return a function that runs a task in its own event loop with a timeout."""

    async def within(*words: str) -> object:
        try:
            async with asyncio.timeout(2 * PATIENCE_SECONDS):
                return await work(*words)
        except TimeoutError as late:
            raise Failed("KafkaTimeoutError", "the call did not return") from late

    return lambda *words: asyncio.run(within(*words))


if __name__ == "__main__":
    works: dict[str, Callable[..., Coroutine[object, object, object]]] = {
        "produce": produce,
        "transact": transact,
        "read": read,
        "group": group,
        "copy": copy,
    }
    serve("aiokafka", aiokafka.__version__, {verb: by_itself(work) for verb, work in works.items()})
