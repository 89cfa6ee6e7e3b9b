"""aiokafka and kafka-python: producers with and without idempotence, consumers by assignment, admin
clients.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable

import kafka
import kafka.admin
import kafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from kraftsim.cluster.processes import ProcessCluster
from protocol.records.record import Compression
from tests.clients.disks import batches_on_disk
from tests.cluster.running import restart_and_wait, wait_until_known

pytestmark = pytest.mark.interop
SECONDS = 30.0
PARTITIONS = 3
WRITERS = 3
EACH = 300
WRITTEN = Counter(
    (b"%d" % name, b"value-%d" % number) for name in range(WRITERS) for number in range(EACH)
)


async def create_by_aiokafka(cluster: ProcessCluster, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    answer = await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    assert [each[1] for each in answer.topic_errors] == [0]
    await asyncio.to_thread(wait_until_known, cluster, topic, PARTITIONS)
    assert topic in await admin.list_topics()
    await admin.close()


async def read_by_aiokafka(
    cluster: ProcessCluster, topic: str
) -> list[tuple[int, int, bytes, bytes]]:
    """Return (partition, offset, key, value) of every record."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap, group_id=None, auto_offset_reset="earliest"
    )
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(places)
    await consumer.start()
    ends = await consumer.end_offsets(places)
    read: list[tuple[int, int, bytes, bytes]] = []
    async with asyncio.timeout(SECONDS):
        while len(read) < sum(ends.values()):
            found = await consumer.getmany(timeout_ms=200)
            read += [
                (each.partition, each.offset, each.key, each.value)
                for messages in found.values()
                for each in messages
            ]
    await consumer.stop()
    return read


@pytest.mark.parametrize(
    "idempotent, compression",
    [(False, None), (True, None), (True, "gzip"), (True, "snappy"), (True, "lz4"), (True, "zstd")],
)
async def test_aiokafka_writes_and_reads_everything_once(
    cluster: ProcessCluster, topic: str, idempotent: bool, compression: str | None
) -> None:
    await create_by_aiokafka(cluster, topic)

    async def write(name: int) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap,
            enable_idempotence=idempotent,
            compression_type=compression,
            linger_ms=2,
            retry_backoff_ms=50,
        )
        await producer.start()
        sent = [
            await producer.send(topic, b"value-%d" % number, b"%d" % name, number % PARTITIONS)
            for number in range(EACH)
        ]
        await asyncio.gather(*sent)
        await producer.stop()

    await asyncio.gather(*(write(name) for name in range(WRITERS)))
    read = await read_by_aiokafka(cluster, topic)
    assert Counter((key, value) for _, _, key, value in read) == WRITTEN
    assert_offsets_without_gap((partition, offset) for partition, offset, _, _ in read)
    assert {
        Compression(batch.compression).name.lower() for batch in batches_on_disk(cluster, topic, 0)
    } == {compression or "none"}


async def test_aiokafka_continues_when_a_broker_is_killed_and_restarted(
    cluster: ProcessCluster, topic: str
) -> None:
    await create_by_aiokafka(cluster, topic)
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        enable_idempotence=True,
        linger_ms=2,
        retry_backoff_ms=50,
    )
    await producer.start()
    sent = []
    for number in range(900):
        sent.append(await producer.send(topic, b"value-%d" % number, b"0", number % PARTITIONS))
        if number == 300:
            await cluster.kill_node("broker-1")
        if number == 600:
            await cluster.restart_node("broker-1")
        await asyncio.sleep(0.001)
    await asyncio.gather(*sent)
    await producer.stop()
    await cluster.answering()
    read = await read_by_aiokafka(cluster, topic)
    assert Counter(value for _, _, _, value in read) == Counter(
        b"value-%d" % number for number in range(900)
    )


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_kafka_python_writes_and_reads_everything_once(
    cluster: ProcessCluster, topic: str, idempotent: bool
) -> None:
    """In the idempotent round a broker is killed and restarted while records are produced."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([kafka.admin.NewTopic(topic, PARTITIONS, 1)])
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        admin.create_topics([kafka.admin.NewTopic(topic, PARTITIONS, 1)])
    wait_until_known(cluster, topic, PARTITIONS)
    assert topic in admin.list_topics()
    admin.close()

    def write(name: int) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=cluster.bootstrap,
            enable_idempotence=idempotent,
            linger_ms=2,
            retry_backoff_ms=50,
        )
        for number in range(EACH):
            futures.append(
                producer.send(
                    topic, b"value-%d" % number, b"%d" % name, partition=number % PARTITIONS
                )
            )
            if number == 100:
                half_way.wait(SECONDS)
        producer.flush(SECONDS)
        producer.close()

    futures: list[kafka.producer.future.FutureRecordMetadata] = []
    half_way = threading.Barrier(WRITERS + 1)
    writers = [threading.Thread(target=write, args=(name,)) for name in range(WRITERS)]
    for writer in writers:
        writer.start()
    half_way.wait(SECONDS)
    if idempotent:
        cluster.kill("broker-3")
        restart_and_wait(cluster, "broker-3")
    for writer in writers:
        writer.join(2 * SECONDS)
    assert all(future.succeeded() for future in futures)
    read = read_by_kafka_python(cluster, topic)
    assert Counter((message.key, message.value) for message in read) == WRITTEN
    assert_offsets_without_gap((message.partition, message.offset) for message in read)


def read_by_kafka_python(
    cluster: ProcessCluster, topic: str
) -> list[kafka.consumer.fetcher.ConsumerRecord]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=cluster.bootstrap,
        enable_auto_commit=False,
        consumer_timeout_ms=1000 * int(SECONDS),
    )
    places = [kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(places)
    consumer.seek_to_beginning()
    wanted = sum(consumer.end_offsets(places).values())
    read = []
    for message in consumer:
        read.append(message)
        if len(read) == wanted:
            break
    consumer.close()
    return read


def assert_offsets_without_gap(places: Iterable[tuple[int, int]]) -> None:
    offsets: dict[int, list[int]] = {}
    for partition, offset in places:
        offsets.setdefault(partition, []).append(offset)
    assert all(found == list(range(len(found))) for found in offsets.values())
