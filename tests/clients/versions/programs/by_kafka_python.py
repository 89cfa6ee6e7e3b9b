"""kafka-python of any release: `by_kafka_python.py BOOTSTRAP NAME PATIENCE_MS`.

Before 2.1 it has neither idempotence nor transactions.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import kafka
from kafka.structs import OffsetAndMetadata, TopicPartition
from lines import EACH, TRANSACTIONS, Failed, serve

BOOTSTRAP, NAME = sys.argv[1].split(","), sys.argv[2]
PATIENCE_MS = int(sys.argv[3])
BOTH = {
    "bootstrap_servers": BOOTSTRAP,
    "client_id": NAME,
    "retry_backoff_ms": 50,
    "reconnect_backoff_ms": 50,
}
CONFIG = kafka.KafkaProducer.DEFAULT_CONFIG
HAS_IDEMPOTENCE, HAS_TRANSACTIONS = "enable_idempotence" in CONFIG, "transactional_id" in CONFIG
HAS_ISOLATION = "isolation_level" in kafka.KafkaConsumer.DEFAULT_CONFIG


def producer(identity: str = "") -> kafka.KafkaProducer:
    """Return a new producer."""
    own = {"acks": "all", "max_block_ms": PATIENCE_MS}
    if HAS_IDEMPOTENCE:
        own["enable_idempotence"] = True
    if identity:
        own["transactional_id"] = identity
    return kafka.KafkaProducer(**BOTH, **own)


def consumer(*topics: str, group: str | None = None) -> kafka.KafkaConsumer:
    """Return a new consumer, read_committed if the release supports it."""
    own = {"isolation_level": "read_committed"} if HAS_ISOLATION else {}
    return kafka.KafkaConsumer(
        *topics,
        **BOTH,
        **own,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )


def take(reader: kafka.KafkaConsumer, count: int) -> list[Any]:
    """Read this many records, and check once more whether there are too many."""
    found: list[Any] = []
    give_up_at = time.monotonic() + PATIENCE_MS / 1000
    while len(found) < count:
        if time.monotonic() > give_up_at:
            raise Failed("KafkaTimeoutError", f"{len(found)} of {count} records were read")
        found += [record for records in reader.poll(100).values() for record in records]
    return found + [record for records in reader.poll(300).values() for record in records]


def values(found: list[Any]) -> str:
    """Return partition:value of each."""
    return " ".join(f"{record.partition}:{record.value.decode()}" for record in found)


def next_offsets(found: list[Any]) -> dict[Any, Any]:
    """Return the next offsets in the form of the release: the leader epoch was added in 2.1."""
    more = (-1,) if "leader_epoch" in OffsetAndMetadata._fields else ()
    return {
        TopicPartition(each.topic, each.partition): OffsetAndMetadata(each.offset + 1, "", *more)
        for each in found
    }


def produce(topic: str, partitions: str, count: str) -> None:
    writer = producer()
    try:
        sent = [
            writer.send(
                topic, b"value-%d" % number, b"key-%d" % number, partition=number % int(partitions)
            )
            for number in range(int(count))
        ]
        for each in sent:
            each.get(PATIENCE_MS / 1000)
    finally:
        writer.close(1)


def transact(topic: str, partitions: str, identity: str) -> None:
    writer = producer(identity)
    try:
        writer.init_transactions()
        for name in TRANSACTIONS:
            writer.begin_transaction()
            sent = [
                writer.send(
                    topic,
                    b"%s%d" % (name.encode(), each),
                    b"key-%d" % each,
                    partition=each % int(partitions),
                )
                for each in range(EACH)
            ]
            for each in sent:
                each.get(PATIENCE_MS / 1000)
            if name == "aborted-":
                writer.abort_transaction()
            else:
                writer.commit_transaction()
    finally:
        writer.close(1)


def read(topic: str, partitions: str, count: str) -> str:
    reader = consumer()
    try:
        places = [TopicPartition(topic, number) for number in range(int(partitions))]
        reader.assign(places)
        reader.seek_to_beginning(*places)
        return values(take(reader, int(count)))
    finally:
        reader.close(autocommit=False)


def group(topic: str, name: str, count: str) -> str:
    reader = consumer(topic, group=name)
    try:
        found = take(reader, int(count))
        if found:
            reader.commit(next_offsets(found))
        return values(found)
    finally:
        reader.close(autocommit=False)


def copy(source: str, sink: str, name: str, identity: str, count: str) -> None:
    writer, reader = producer(identity), consumer(source, group=name)
    try:
        writer.init_transactions()
        found = take(reader, int(count))
        for is_committed in (False, True):
            writer.begin_transaction()
            sent = [
                writer.send(sink, record.value, record.key, partition=record.partition)
                for record in found
            ]
            for each in sent:  # 2.2 hangs when it aborts records that are not sent yet
                each.get(PATIENCE_MS / 1000)
            member = reader.group_metadata() if hasattr(reader, "group_metadata") else name
            writer.send_offsets_to_transaction(next_offsets(found), member)
            if is_committed:
                writer.commit_transaction()
            else:
                writer.abort_transaction()
    finally:
        reader.close(autocommit=False)
        writer.close(1)


VERBS: dict[str, Callable[..., object]] = {
    "produce" if HAS_IDEMPOTENCE else "plain": produce,
    "group": group,
}
if HAS_ISOLATION:
    VERBS["read"] = read
if HAS_TRANSACTIONS:
    VERBS |= {"transact": transact, "copy": copy}

if __name__ == "__main__":
    serve("kafka-python", kafka.__version__, VERBS)
