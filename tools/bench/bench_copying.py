"""Measures MB/s of an exactly-once consume-transform-produce app by librdkafka, with one member and
four.

    python -m tools.bench.bench_copying [--megabytes 30] [--replicas 1 3] [--members 1 4]

Records of 1 KiB in four partitions; a transaction every 100 ms or 2000 records, whichever comes
first, as Kafka Streams does. The time is from the first commit to the last, so without the group's
first rebalance; both kinds of cluster have the same settings, and a broker per replica.
"""

import argparse
import sys
import threading
import time

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench.bench_transactions import GIVE_UP_SECONDS, internal_topics
from tools.bench.clusters import cluster
from tools.bench.result import report_rate
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects

PARTITIONS = 4
RECORD_BYTES = 1024
MEGABYTE = 1_000_000
BATCH = 2000
COMMIT_SECONDS = 0.1


class Member(threading.Thread):
    """One member of the group, with its own producer."""

    def __init__(self, bootstrap: str, group: str, source: str, sink: str, name: str) -> None:
        super().__init__(daemon=True)
        common = {"bootstrap.servers": bootstrap, "log_level": 3}
        offsets = {
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        self.consumer = confluent_kafka.Consumer(
            {**common, **offsets, "group.id": group, "fetch.wait.max.ms": 20}
        )
        self.producer = confluent_kafka.Producer(
            {**common, "transactional.id": name, "linger.ms": 5, "batch.size": 1_000_000}
        )
        self.source, self.sink = source, sink
        self.is_over = threading.Event()
        self.copied = 0
        self.transactions = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        """Run until stopped."""
        try:
            self.producer.init_transactions(GIVE_UP_SECONDS)
            self.consumer.subscribe([self.source])
            while not self.is_over.is_set():
                messages = self.consumer.consume(BATCH, COMMIT_SECONDS)
                if messages:
                    self._copy(messages)
            self.consumer.close()
        except confluent_kafka.KafkaException as trouble:
            self.failure = trouble

    def _copy(self, messages: list[confluent_kafka.Message]) -> None:
        self.producer.begin_transaction()
        nexts: dict[int, int] = {}
        for message in messages:
            value, partition, offset = message.value(), message.partition(), message.offset()
            assert value is not None and partition is not None and offset is not None
            self.producer.produce(self.sink, value[::-1], message.key(), partition)
            nexts[partition] = offset + 1
        places = [
            confluent_kafka.TopicPartition(self.source, partition, offset)
            for partition, offset in nexts.items()
        ]
        self.producer.send_offsets_to_transaction(
            places, self.consumer.consumer_group_metadata(), GIVE_UP_SECONDS
        )
        self.producer.commit_transaction(GIVE_UP_SECONDS)
        self.copied += len(messages)
        self.transactions += 1


def fill(bootstrap: str, topic: str, records: int) -> None:
    """Write the input."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1_000_000,
        }
    )
    payload = bytes(index * 131 % 251 for index in range(RECORD_BYTES))
    for index in range(records):
        while True:
            try:
                producer.produce(topic, payload, partition=index % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(2 * GIVE_UP_SECONDS) == 0, "the input is written"


def copy(bootstrap: str, source: str, sink: str, members: int, records: int) -> tuple[float, float]:
    """Return MB/s of input and transactions per second."""
    transform_workers = [
        Member(bootstrap, sink, source, sink, f"{sink}-{number}") for number in range(members)
    ]
    for transform_worker in transform_workers:
        transform_worker.start()
    began, already, committed = time.perf_counter(), 0, 0
    while (
        copied := sum(transform_worker.copied for transform_worker in transform_workers)
    ) < records:
        if copied and not already:
            began, already, committed = (
                time.perf_counter(),
                copied,
                sum(transform_worker.transactions for transform_worker in transform_workers),
            )
        time.sleep(0.005)
        assert time.perf_counter() - began < 4 * GIVE_UP_SECONDS, (
            f"{copied} of {records} are copied"
        )
        for transform_worker in transform_workers:
            if transform_worker.failure is not None:
                raise transform_worker.failure
    took = time.perf_counter() - began
    for transform_worker in transform_workers:
        transform_worker.is_over.set()
    for transform_worker in transform_workers:
        transform_worker.join(GIVE_UP_SECONDS)
    transactions = (
        sum(transform_worker.transactions for transform_worker in transform_workers) - committed
    )
    return (records - already) * RECORD_BYTES / MEGABYTE / took, transactions / took


def main() -> int:
    """Measure every subject, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=30)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 3], choices=[1, 3])
    parser.add_argument("--members", type=int, nargs="+", default=[1, 4])
    parser.add_argument(
        "--subject", nargs="+", default=subjects(), choices=[APACHE_KAFKA, KRAFTSIM]
    )
    options = parser.parse_args()
    records = options.megabytes * MEGABYTE // RECORD_BYTES
    rates: dict[tuple[str, int, int], float] = {}
    for replicas in options.replicas:
        for name in options.subject:
            with cluster(name, replicas, internal_topics(replicas)) as running:
                admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
                topics = ["input", *(f"output-{members}" for members in options.members)]
                for future in admin.create_topics(
                    [NewTopic(topic, PARTITIONS, replicas) for topic in topics]
                ).values():
                    future.result(GIVE_UP_SECONDS)
                fill(running.bootstrap, "input", records)
                for members in options.members:
                    rate, transactions = copy(
                        running.bootstrap, "input", f"output-{members}", members, records
                    )
                    rates[name, replicas, members] = rate
                    print(
                        f"{name:20s} RF {replicas}, {members} members: {rate:6.1f} MB/s in "
                        f"{transactions:.1f} transactions/s",
                        flush=True,
                    )
    for (name, replicas, members), rate in rates.items():
        theirs = rates.get((APACHE_KAFKA, replicas, members))
        if name == KRAFTSIM:
            report_rate(
                f"copying.rf{replicas}.{members}",
                f"consume-transform-produce, {members} members, RF {replicas}",
                "MB/s",
                [rate],
                peer=APACHE_KAFKA,
                peer_values=(theirs,) if theirs else (),
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
