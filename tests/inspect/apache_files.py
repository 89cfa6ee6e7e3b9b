"""Lets Apache Kafka write every kind of file: plain, idempotent and transactional records, aborted
ones, every codec, groups, transactions.
"""

import hashlib
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

TOPIC = "mixed"
STAMPED = "stamped"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {
    "log.segment.bytes": "20000",
    "log.index.interval.bytes": "500",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "metadata.log.max.record.bytes.between.snapshots": "1000",
}
TIMESTAMP = 1_700_000_000_000
SECONDS = 30.0


def write_everything(bootstrap: str) -> None:
    """Write everything to a node of Apache Kafka that is stored in its files."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(TOPIC, 1, 1),
        NewTopic(STAMPED, 1, 1, config={"message.timestamp.type": "LogAppendTime"}),
    ]
    for created in admin.create_topics(topics).values():
        created.result(SECONDS)
    _write_codecs(bootstrap)
    _write_transactions(bootstrap)
    _write_oddities(bootstrap)
    _read_as_group(bootstrap)
    change = ConfigEntry("retention.ms", "123456789", incremental_operation=AlterConfigOpType.SET)
    for altered in admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, STAMPED, incremental_configs=[change])]
    ).values():
        altered.result(SECONDS)
    for deleted in admin.delete_consumer_groups(["leaves"]).values():
        deleted.result(SECONDS)


def _producer(bootstrap: str, **settings: str | int | bool) -> Producer:
    quick = {"linger.ms": 5, "batch.size": 6000}
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            **quick,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def _write_codecs(bootstrap: str) -> None:
    for turn, codec in enumerate(CODECS):
        producer = _producer(bootstrap, enable_idempotence=turn % 2 == 0, compression_type=codec)
        for number in range(200):
            value = hashlib.sha256(b"%d %d" % (turn, number)).hexdigest().encode()
            producer.produce(
                TOPIC,
                value,
                b"%d" % number,
                0,
                timestamp=TIMESTAMP + turn * 1000 + number,
                headers=[("turn", b"%d" % turn), ("null", None)],
            )
        assert producer.flush(SECONDS) == 0


def _write_transactions(bootstrap: str) -> None:
    producer = _producer(bootstrap, transactional_id="writer", compression_type="lz4")
    producer.init_transactions(SECONDS)
    for number in range(9):
        producer.begin_transaction()
        for each in range(10):
            producer.produce(
                TOPIC,
                b"transaction %d record %d" % (number, each),
                partition=0,
                timestamp=TIMESTAMP + 10_000 + number,
            )
        producer.flush(SECONDS)
        if number % 3 == 1:
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
    open_one = _producer(bootstrap, transactional_id="unfinished")
    open_one.init_transactions(SECONDS)
    open_one.begin_transaction()
    open_one.produce(TOPIC, b"never committed", partition=0)
    open_one.flush(SECONDS)


def _write_oddities(bootstrap: str) -> None:
    producer = _producer(bootstrap)
    producer.produce(STAMPED, None, b"a tombstone", 0)
    producer.produce(STAMPED, b"", None, 0)
    producer.produce(
        STAMPED, 'a "quoted" \\ value with letters beyond ASCII: größer 日本'.encode(), b"", 0
    )
    assert producer.flush(SECONDS) == 0


def _read_as_group(bootstrap: str) -> None:
    for group, leaves in (("readers", False), ("leaves", True)):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([TOPIC, STAMPED])
        assert consumer.consume(50, SECONDS)
        consumer.commit(asynchronous=False)
        if leaves:
            consumer.commit(
                offsets=[TopicPartition(TOPIC, 0, 7, metadata="by hand")], asynchronous=False
            )
        consumer.close()


def files_of(data: Path) -> list[Path]:
    """Return every file of a data directory that DumpLogSegments reads."""
    return sorted(
        file
        for file in data.rglob("*")
        if file.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
    )


__all__ = [
    "CODECS",
    "SETTINGS",
    "STAMPED",
    "TOPIC",
    "KafkaException",
    "files_of",
    "write_everything",
]
