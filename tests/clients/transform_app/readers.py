"""read_committed consumers of two libraries: output of one client is read by another."""

from typing import Protocol

import kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from tests.clients.transform_app.clusters import PARTITIONS, QUIET

LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._NO_OFFSET)
"""Without a position the reader would miss records."""


def _place_and_key(message: Message) -> tuple[int, int, bytes]:
    partition, offset, key = message.partition(), message.offset(), message.key()
    assert partition is not None and offset is not None and key is not None
    return partition, offset, key


class Reader(Protocol):
    """Reads every committed record of a topic once."""

    def read(self, seconds: float) -> list[tuple[int, int, bytes]]:
        """Return partition, offset and key of the fetched records."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class ByLibrdkafka:
    """librdkafka."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "check.crcs": True,
        }
        settings["auto.offset.reset"] = "error"
        self._consumer = Consumer({**QUIET, **settings, "bootstrap.servers": bootstrap})
        self._consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        )

    def read(self, seconds: float) -> list[tuple[int, int, bytes]]:
        """Return the fetched records."""
        messages = self._consumer.consume(1000, seconds)
        for message in messages:
            error = message.error()
            assert error is None or error.retriable() or error.code() not in LOST, (
                f"{message.topic()}-{message.partition()}: {error}"
            )
        return [_place_and_key(message) for message in messages if message.error() is None]

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


class ByKafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=None,
            isolation_level="read_committed",
            enable_auto_commit=False,
            metadata_max_age_ms=1000,
        )
        places = [kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
        self._consumer.assign(places)
        self._consumer.seek_to_beginning(*places)

    def read(self, seconds: float) -> list[tuple[int, int, bytes]]:
        """Return the fetched records."""
        found = self._consumer.poll(int(1000 * seconds), max_records=1000)
        return [
            (record.partition, record.offset, record.key)
            for records in found.values()
            for record in records
        ]

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close(autocommit=False)
