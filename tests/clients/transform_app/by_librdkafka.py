"""Consume-transform-produce app with librdkafka: `by_librdkafka.py BOOTSTRAP GROUP INPUT OUTPUT
TRANSACTIONAL_ID`, until SIGTERM.

Every seventh transaction is aborted deliberately and repeated. Offsets are committed in the
transaction with the member's generation (KIP-447).
"""

import signal
import sys
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

BATCH = 40
WHIM = 7


def first_and_next(messages: list[Message]) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Return the start positions, for a failure, and the next positions, for a commit."""
    firsts: dict[tuple[str, int], int] = {}
    nexts: dict[tuple[str, int], int] = {}
    for message in messages:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None and partition is not None and offset is not None
        firsts.setdefault((topic, partition), offset)
        nexts[topic, partition] = offset + 1
    return [TopicPartition(*place, offset) for place, offset in firsts.items()], [
        TopicPartition(*place, offset) for place, offset in nexts.items()
    ]


class TransformWorker:
    """A consumer and its transactional producer."""

    def __init__(self, bootstrap: str, group: str, source: str, sink: str, name: str) -> None:
        common = {
            "bootstrap.servers": bootstrap,
            "log_level": 3,
            "retry.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
        }
        sessions = {
            "session.timeout.ms": 2500,
            "heartbeat.interval.ms": 300,
            "max.poll.interval.ms": 10_000,
        }
        offsets = {
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        self.consumer = Consumer({**common, **sessions, **offsets, "group.id": group})
        self.producer = Producer(
            {**common, "transactional.id": name, "transaction.timeout.ms": 5000}
        )
        self.sink = sink
        self.count = 0
        self.is_over = False
        self.producer.init_transactions(30)
        self.consumer.subscribe([source])

    def run(self) -> None:
        """Run until it is stopped."""
        while not self.is_over:
            messages = [
                message for message in self.consumer.consume(BATCH, 0.1) if message.error() is None
            ]
            if messages:
                self.copy(messages)
        self.consumer.close()

    def copy(self, messages: list[Message]) -> None:
        """Process some records in one transaction; read them again if it fails."""
        firsts, nexts = first_and_next(messages)
        self.count += 1
        try:
            self.producer.begin_transaction()
            for message in messages:
                value, partition = message.value(), message.partition()
                assert value is not None and partition is not None
                self.producer.produce(self.sink, value.upper(), message.key(), partition)
            self.with_retries(
                lambda: self.producer.send_offsets_to_transaction(
                    nexts, self.consumer.consumer_group_metadata(), 10
                )
            )
            if self.count % WHIM == 0:
                self.with_retries(lambda: self.producer.abort_transaction(10))
                self.rewind(firsts)
                return
            self.with_retries(lambda: self.producer.commit_transaction(10))
        except KafkaException as trouble:
            print("trouble", trouble, file=sys.stderr, flush=True)
            if not trouble.args[0].txn_requires_abort():
                raise
            self.with_retries(lambda: self.producer.abort_transaction(10))
            self.rewind(firsts)

    def with_retries(self, work: Callable[[], object]) -> None:
        """Retry a call while its error is retriable."""
        while True:
            try:
                work()
                return
            except KafkaException as trouble:
                if not trouble.args[0].retriable():
                    raise

    def rewind(self, firsts: list[TopicPartition]) -> None:
        """Seek back to the start of the transaction, for partitions that are still assigned to this
        member.
        """
        mine = {(each.topic, each.partition) for each in self.consumer.assignment()}
        for place in firsts:
            if (place.topic, place.partition) in mine:
                self.consumer.seek(place)


def main() -> None:
    """Run until SIGTERM."""
    worker = TransformWorker(*sys.argv[1:])

    def stop(*_: object) -> None:
        worker.is_over = True

    signal.signal(signal.SIGTERM, stop)
    worker.run()


if __name__ == "__main__":
    main()
