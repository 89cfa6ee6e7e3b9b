"""Copies a topic exactly once with librdkafka: `by_librdkafka.py BOOTSTRAP GROUP INPUT OUTPUT TRANSACTIONAL_ID`, until SIGTERM.

Every seventh transaction is aborted on a whim and done again. Offsets go into the transaction with the member's generation (KIP-447).
"""

import signal
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

BATCH = 40
WHIM = 7


def first_and_next(messages: list[Message]) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Return where to begin again if it fails, and where to go on if it does not."""
    firsts: dict[tuple[str, int], int] = {}
    nexts: dict[tuple[str, int], int] = {}
    for message in messages:
        place = (message.topic(), message.partition())
        firsts.setdefault(place, message.offset())
        nexts[place] = message.offset() + 1
    return [TopicPartition(*place, offset) for place, offset in firsts.items()], [TopicPartition(*place, offset) for place, offset in nexts.items()]


class Copier:
    """A consumer and a producer that go together."""

    def __init__(self, bootstrap: str, group: str, source: str, sink: str, name: str) -> None:
        common = {"bootstrap.servers": bootstrap, "log_level": 3, "retry.backoff.ms": 50, "reconnect.backoff.max.ms": 500}
        sessions = {"session.timeout.ms": 2500, "heartbeat.interval.ms": 300, "max.poll.interval.ms": 10_000}
        offsets = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        self.consumer = Consumer({**common, **sessions, **offsets, "group.id": group})
        self.producer = Producer({**common, "transactional.id": name, "transaction.timeout.ms": 5000})
        self.sink = sink
        self.count = 0
        self.is_over = False
        self.producer.init_transactions(30)
        self.consumer.subscribe([source])

    def run(self) -> None:
        """Copy until it is over."""
        while not self.is_over:
            messages = [message for message in self.consumer.consume(BATCH, 0.1) if message.error() is None]
            if messages:
                self.copy(messages)
        self.consumer.close()

    def copy(self, messages: list[Message]) -> None:
        """Copy some records in one transaction; begin again with them if it fails."""
        firsts, nexts = first_and_next(messages)
        self.count += 1
        try:
            self.producer.begin_transaction()
            for message in messages:
                self.producer.produce(self.sink, message.value().upper(), message.key(), message.partition())
            self.patiently(lambda: self.producer.send_offsets_to_transaction(nexts, self.consumer.consumer_group_metadata(), 10))
            if self.count % WHIM == 0:
                self.patiently(lambda: self.producer.abort_transaction(10))
                self.rewind(firsts)
                return
            self.patiently(lambda: self.producer.commit_transaction(10))
        except KafkaException as trouble:
            print("trouble", trouble, file=sys.stderr, flush=True)
            if not trouble.args[0].txn_requires_abort():
                raise
            self.patiently(lambda: self.producer.abort_transaction(10))
            self.rewind(firsts)

    def patiently(self, work) -> None:  # type: ignore[no-untyped-def]
        """Do something again as long as that may help."""
        while True:
            try:
                work()
                return
            except KafkaException as trouble:
                if not trouble.args[0].retriable():
                    raise

    def rewind(self, firsts: list[TopicPartition]) -> None:
        """Read again from where the transaction had begun, as far as the partitions are still this member's."""
        mine = {(each.topic, each.partition) for each in self.consumer.assignment()}
        for place in firsts:
            if (place.topic, place.partition) in mine:
                self.consumer.seek(place)


def main() -> None:
    """Copy until SIGTERM."""
    copier = Copier(*sys.argv[1:])

    def stop(*_: object) -> None:
        copier.is_over = True

    signal.signal(signal.SIGTERM, stop)
    copier.run()


if __name__ == "__main__":
    main()
