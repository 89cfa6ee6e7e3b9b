"""confluent-kafka (librdkafka): plain and idempotent producers in every compression, consumers by
assignment, the admin client.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec

from kraftsim.cluster.processes import ProcessCluster
from protocol.records.record import Compression
from tests.clients.disks import batches_on_disk
from tests.cluster.running import logged_events, restart_and_wait, wait_until_known

pytestmark = pytest.mark.interop
SECONDS = 30.0
QUIET = {"log_level": 0}


def consumer_of(cluster: ProcessCluster) -> Consumer:
    return Consumer(
        {
            **QUIET,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )


def read_all(cluster: ProcessCluster, topic: str, partitions: int) -> list[Message]:
    """Read every record below the high watermarks, by assignment."""
    consumer = consumer_of(cluster)
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=SECONDS)[1]
        for number in range(partitions)
    }
    consumer.assign(
        [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    )
    read: list[Message] = []
    give_up_at = time.monotonic() + SECONDS
    while len(read) < sum(ends.values()):
        assert time.monotonic() < give_up_at, f"{len(read)} of {ends} were read"
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            read.append(message)
    consumer.close()
    return read


def admin_of(cluster: ProcessCluster) -> AdminClient:
    return AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})


def create(cluster: ProcessCluster, topic: str, partitions: int, **config: str) -> None:
    wanted = NewTopic(
        topic,
        num_partitions=partitions,
        replication_factor=1,
        config={key.replace("_", "."): value for key, value in config.items()},
    )
    admin = admin_of(cluster)
    admin.create_topics([wanted])[topic].result(SECONDS)
    wait_until_known(cluster, topic, partitions)


def errors_of(answers: dict[Any, Any]) -> list[str]:
    """Return the names of the errors with which futures of the admin client ended."""
    names = []
    for future in answers.values():
        with pytest.raises(KafkaException) as caught:
            future.result(SECONDS)
        names.append(caught.value.args[0].name())
    return names


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_read_back_as_they_were_written(
    cluster: ProcessCluster, topic: str, compression: str, idempotent: bool
) -> None:
    """Keys, nulls, headers, empty and large values, in order and once, from each partition."""
    create(cluster, topic, 3)
    records = [
        (
            number % 3,
            None if number % 7 == 0 else b"key-%d" % number,
            b"" if number % 11 == 0 else b"value-%d " % number * (number % 50),
        )
        for number in range(600)
    ]
    records.append((0, b"large", bytes(range(256)) * 3500))
    producer = Producer(
        {
            **QUIET,
            "bootstrap.servers": cluster.bootstrap,
            "compression.type": compression,
            "enable.idempotence": idempotent,
            "linger.ms": 20,
        }
    )
    failures: list[KafkaError] = []

    def delivered(trouble: KafkaError | None, _: Message) -> None:
        if trouble is not None:
            failures.append(trouble)

    for partition, key, value in records:
        producer.produce(
            topic,
            value,
            key,
            partition,
            headers=[("trace", b"\x00\xff"), ("none", None)],
            on_delivery=delivered,
        )
    producer.produce(topic, None, b"deleted", 0, on_delivery=delivered)
    assert (producer.flush(SECONDS), failures) == (0, [])
    read = read_all(cluster, topic, 3)
    for partition in range(3):
        own = [message for message in read if message.partition() == partition]
        assert [message.offset() for message in own] == list(range(len(own)))
        wanted = [(key, value) for where, key, value in records if where == partition] + (
            [(b"deleted", None)] if partition == 0 else []
        )
        assert [(message.key(), message.value()) for message in own] == wanted
        assert all(
            message.headers() == [("trace", b"\x00\xff"), ("none", None)]
            for message in own
            if message.key() != b"deleted"
        )
    kept = {
        Compression(batch.compression).name.lower() for batch in batches_on_disk(cluster, topic, 1)
    }
    # librdkafka sends a batch uncompressed if compression does not make it smaller: on a slow
    # machine a batch has few records.
    assert compression in kept and kept <= {compression, "none"}, "batches are stored as received"


def test_producers_lose_and_duplicate_nothing_while_a_broker_is_killed(
    cluster: ProcessCluster, topic: str
) -> None:
    """Four idempotent producers, one broker killed with SIGKILL and restarted: every record is read
    exactly once, in order by producer.
    """
    create(cluster, topic, 6)
    started, each = threading.Barrier(5), 3000

    def write(name: int) -> None:
        producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 50,
            }
        )
        started.wait(SECONDS)
        for number in range(each):
            producer.produce(topic, b"%d" % number, b"%d" % name, number % 6)
            producer.poll(0)
            if number % 50 == 0:
                time.sleep(0.01)
        left[name] = producer.flush(SECONDS)

    left: dict[int, int] = {}
    writers = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for writer in writers:
        writer.start()
    started.wait(SECONDS)
    time.sleep(0.2)
    cluster.kill("broker-2")
    assert all(writer.is_alive() for writer in writers), (
        "the kill must happen while records are produced"
    )
    time.sleep(0.3)
    restart_and_wait(cluster, "broker-2")
    for writer in writers:
        writer.join(2 * SECONDS)
    assert left == dict.fromkeys(range(4), 0)
    read = read_all(cluster, topic, 6)
    found = Counter((message.key(), message.value()) for message in read)
    assert found == Counter(
        (b"%d" % name, b"%d" % number) for name in range(4) for number in range(each)
    )
    for name in range(4):
        for partition in range(6):
            own = [
                int(message.value() or b"")
                for message in read
                if message.key() == b"%d" % name and message.partition() == partition
            ]
            assert own == sorted(own)
    appended = [
        event
        for event in logged_events(cluster.directory, "BatchAppended", "broker-*")
        if event["topic"] == topic
    ]
    sequences = Counter(
        (event["producer_id"], event["partition"], event["producer_epoch"], event["base_sequence"])
        for event in appended
    )
    assert max(sequences.values()) == 1, "at most one append per sequence"


def test_consumers_seek_by_watermark_timestamp_and_offset(
    cluster: ProcessCluster, topic: str
) -> None:
    create(cluster, topic, 1)
    producer = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap})
    for number in range(10):
        producer.produce(
            topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + 1000 * number
        )
    assert producer.flush(SECONDS) == 0
    consumer = consumer_of(cluster)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS) == (0, 10)
    assert (
        consumer.offsets_for_times([TopicPartition(topic, 0, 1_700_000_006_500)], timeout=SECONDS)[
            0
        ].offset
        == 7
    )
    consumer.assign([TopicPartition(topic, 0, 7)])
    messages: list[Message] = []
    while len(messages) < 3:
        messages += consumer.consume(3, SECONDS)
    assert [(message.offset(), message.value()) for message in messages] == [
        (7, b"7"),
        (8, b"8"),
        (9, b"9"),
    ]
    consumer.close()


def test_the_admin_client_creates_and_lists_topics(cluster: ProcessCluster, topic: str) -> None:
    create(cluster, topic, 5, max_message_bytes="100000")
    admin = admin_of(cluster)
    described = admin.list_topics(timeout=SECONDS)
    assert sorted(described.brokers) == [1, 2, 3]
    partitions = described.topics[topic].partitions
    assert [(number, partitions[number].replicas) for number in sorted(partitions)] == [
        (number, [partitions[number].leader]) for number in range(5)
    ]
    assert {partitions[number].leader for number in partitions} == {1, 2, 3}, (
        "leaders are spread over the brokers"
    )
    asked = {
        topic: "TOPIC_ALREADY_EXISTS",
        "a/b": "TOPIC_EXCEPTION",
        f"{topic}-copied": "INVALID_REPLICATION_FACTOR",
        f"{topic}-none": "INVALID_PARTITIONS",
    }
    bad = [
        NewTopic(topic, 1, 1),
        NewTopic("a/b", 1, 1),
        NewTopic(f"{topic}-copied", 1, 4),
        NewTopic(f"{topic}-none", 0, 1),
    ]
    assert dict(zip(asked, errors_of(admin.create_topics(bad)), strict=True)) == asked
    about = admin.describe_cluster().result(SECONDS)
    assert (about.cluster_id, sorted(node.id for node in about.nodes)) == (
        cluster.spec.cluster_id,
        [1, 2, 3],
    )
    ends = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})  # type: ignore[no-untyped-call]  # confluent_kafka does not annotate OffsetSpec
    assert [future.result(SECONDS).offset for future in ends.values()] == [0]


def test_a_record_above_max_message_bytes_is_refused_and_others_succeed(
    cluster: ProcessCluster, topic: str
) -> None:
    create(cluster, topic, 1, max_message_bytes="1000")
    producer = Producer(
        {
            **QUIET,
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
        }
    )
    answers: list[str] = []

    def delivered(trouble: KafkaError | None, _: Message) -> None:
        answers.append("" if trouble is None else trouble.name())

    for size in (10, 5000, 10):
        producer.produce(topic, bytes(size), partition=0, on_delivery=delivered)
        producer.flush(SECONDS)
    assert answers == ["", "MSG_SIZE_TOO_LARGE", ""]
    assert [len(message.value() or b"") for message in read_all(cluster, topic, 1)] == [10, 10]


def test_topics_are_described_extended_and_deleted(cluster: ProcessCluster, topic: str) -> None:
    create(cluster, topic, 1)
    admin = admin_of(cluster)
    (described,) = admin.describe_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, topic)]
    ).values()
    configs = described.result(SECONDS)
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].is_default) == (
        "delete",
        True,
    )
    (widened,) = admin.create_partitions([NewPartitions(topic, 3)]).values()
    widened.result(SECONDS)
    await_that(lambda: len(partitions_of(admin, topic)) == 3)
    (deleted,) = admin.delete_topics([topic]).values()
    deleted.result(SECONDS)
    await_that(lambda: not partitions_of(admin, topic))


def partitions_of(admin: AdminClient, topic: str) -> list[int]:
    found = admin.list_topics(timeout=SECONDS).topics.get(topic)
    return [] if found is None or found.error is not None else sorted(found.partitions)


def await_that(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, "brokers receive the metadata in time"
        time.sleep(0.05)


def test_the_admin_client_deletes_records_and_lists_groups(
    cluster: ProcessCluster, topic: str
) -> None:
    create(cluster, topic, 1)
    producer = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap})
    for number in range(5):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(SECONDS) == 0
    admin = admin_of(cluster)
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 3)]).values()
    assert deleted.result(SECONDS).low_watermark == 3
    (begins,) = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}).values()  # type: ignore[no-untyped-call]  # confluent_kafka does not annotate OffsetSpec
    assert begins.result(SECONDS).offset == 3
    assert admin.list_consumer_groups().result(SECONDS).errors == []
