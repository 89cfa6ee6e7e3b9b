"""Clients configured for brokers of 0.8.2 to 0.10.2: they write and read message formats 0 and 1,
supported by Apache Kafka 3.9.1 and kraftsim.
"""

from collections import Counter

import kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from kraftsim.cluster.processes import ProcessCluster
from kraftsim.conformance.target import Target
from protocol.records.record import Compression
from tests.clients.disks import batches_on_disk

pytestmark = pytest.mark.interop
SECONDS = 30.0
PARTITIONS = 3
EACH = 40
TIME = 1_700_000_000_000
Found = tuple[int | None, int | None, bytes | None, bytes | None, int | None]
"""Partition, offset, key, value, timestamp."""


@pytest.fixture(params=["kraftsim", "apache_kafka"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Both get the same requests."""
    found = request.getfixturevalue(
        "cluster" if request.param == "kraftsim" else "apache_kafka"
    ).bootstrap
    assert isinstance(found, str)
    return found


def new_topic(bootstrap: str, partitions: int) -> str:
    """Create a topic and return its name when it has a leader."""
    return Target(bootstrap.partition(",")[0]).topic(partitions=partitions).name


def sent(number: int) -> tuple[int, bytes, bytes, int]:
    """Partition, key, value and timestamp of a record."""
    return number % PARTITIONS, b"key %d" % number, b"value %d" % number, TIME + number


def expected(*, are_timed: bool) -> list[Found]:
    """All records, with their offsets."""
    rows = [sent(number) for number in range(PARTITIONS * EACH)]
    return [
        (partition, number // PARTITIONS, key, value, time if are_timed else None)
        for number, (partition, key, value, time) in enumerate(rows)
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
@pytest.mark.parametrize("release", ["0.8.2", "0.9.0"])
def test_librdkafka_works_without_api_versions(bootstrap: str, release: str, codec: str) -> None:
    """The configured broker version decides the API versions (from 0.10 on it sends ApiVersions
    anyway).

    Format 0 has no timestamps.
    """
    topic = new_topic(bootstrap, PARTITIONS)
    conf = {
        "bootstrap.servers": bootstrap,
        "api.version.request": "false",
        "broker.version.fallback": release,
        "log_level": 0,
    }
    producer = Producer(
        {**conf, "compression.type": codec, "linger.ms": 20, "partitioner": "consistent"}
    )
    for number in range(PARTITIONS * EACH):
        partition, key, value, time = sent(number)
        producer.produce(topic, value, key, partition=partition, timestamp=time)
    assert producer.flush(SECONDS) == 0
    consumer = Consumer(
        {**conf, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
    )
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=SECONDS)
        for each in range(PARTITIONS)
    ]
    assert ends == [(0, EACH)] * PARTITIONS
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    read: list[Found] = []
    while len(read) < PARTITIONS * EACH:
        messages = consumer.consume(PARTITIONS * EACH, SECONDS)
        assert messages and all(each.error() is None for each in messages), messages
        read += [
            (
                each.partition(),
                each.offset(),
                each.key(),
                each.value(),
                each.timestamp()[1] if each.timestamp()[0] else None,
            )
            for each in messages
        ]
    consumer.close()
    assert Counter(read) == Counter(expected(are_timed=False))


@pytest.mark.parametrize("codec", [None, "gzip"])
@pytest.mark.parametrize(
    ("release", "are_timed"),
    [((0, 8, 2), False), ((0, 9), False), ((0, 10), True), ((0, 10, 2), True)],
)
def test_kafka_python_works_with_an_old_broker_version(
    bootstrap: str, release: tuple[int, ...], are_timed: bool, codec: str | None
) -> None:
    topic = new_topic(bootstrap, PARTITIONS)
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        api_version=release,
        compression_type=codec,
        enable_idempotence=False,
        linger_ms=20,
    )
    futures = []
    for number in range(PARTITIONS * EACH):
        partition, key, value, time = sent(number)
        futures.append(producer.send(topic, value, key, partition=partition, timestamp_ms=time))
    producer.flush(SECONDS)
    producer.close()
    assert [each.get(0).offset for each in futures] == [
        number // PARTITIONS for number in range(PARTITIONS * EACH)
    ]
    timeout_ms = 1000 * int(SECONDS)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        api_version=release,
        enable_auto_commit=False,
        consumer_timeout_ms=timeout_ms,
    )
    consumer.assign([kafka.TopicPartition(topic, each) for each in range(PARTITIONS)])
    consumer.seek_to_beginning()
    read: list[Found] = []
    for message in consumer:
        read.append(
            (message.partition, message.offset, message.key, message.value, message.timestamp)
        )
        if len(read) == PARTITIONS * EACH:
            break
    consumer.close()
    assert Counter(read) == Counter(expected(are_timed=are_timed))


def write_one(
    bootstrap: str,
    topic: str,
    value: bytes,
    conf: dict[str, object],
    headers: dict[str, str | bytes | None] | None = None,
) -> None:
    """Write a record to partition 0 with a new producer."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **conf})
    producer.produce(
        topic,
        value,
        partition=0,
        headers=headers,
        on_delivery=lambda error, message: failed.append(error),
    )
    assert producer.flush(SECONDS) == 0 and failed == [None]


def test_records_of_old_clients_are_stored_in_format_2(cluster: ProcessCluster) -> None:
    """And in the other direction: consumers without header support do not get headers."""
    topic = new_topic(cluster.bootstrap, 1)
    values = [bytes([letter]) * 500 for letter in b"abc"]
    old = {"api.version.request": "false", "broker.version.fallback": "0.9.0"}
    write_one(cluster.bootstrap, topic, values[0], {**old, "compression.type": "gzip"})
    write_one(cluster.bootstrap, topic, values[1], {**old, "compression.type": "snappy"})
    write_one(cluster.bootstrap, topic, values[2], {"enable.idempotence": True}, {"h": "1"})
    written = batches_on_disk(cluster, topic, 0)
    assert [(each.magic, each.compression) for each in written] == [
        (2, Compression.GZIP),
        (2, Compression.SNAPPY),
        (2, Compression.NONE),
    ]
    for conf, headers in (({}, [("h", b"1")]), (old, None)):
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "log_level": 0,
                **conf,
            }
        )
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        read = consumer.consume(3, SECONDS)
        consumer.close()
        assert [each.value() for each in read] == values and read[2].headers() == headers
