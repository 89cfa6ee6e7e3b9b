"""Measures librdkafka transactions per second and commit latency, with one producer and with 16 in
parallel.

    python -m tools.bench.bench_transactions [--seconds 4] [--replicas 1 3] [--partitions 1 10]
    [--producers 1 16]

A transaction is one record of 100 bytes for each partition, and a commit. The commit latency is
that of commit_transaction: it flushes the pending records, sends EndTxn and waits for the response.
Both kinds of cluster have the same settings and as many brokers as replicas.
"""

import argparse
import sys
import threading
import time
from statistics import quantiles

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench.clusters import Cluster, cluster
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects

PAYLOAD = bytes(index * 131 % 251 for index in range(100))
WARM_UP_SECONDS = 1.5
GIVE_UP_SECONDS = 30.0


def internal_topics(replicas: int) -> dict[str, str]:
    """Return the replication settings of the coordinators' topics."""
    in_sync = str(max(1, replicas - 1))
    return {
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": in_sync,
        "min.insync.replicas": in_sync,
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "8",
    }


class Committer(threading.Thread):
    """One producer that commits one transaction after the other."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        super().__init__(daemon=True)
        settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "linger.ms": 0,
            "log_level": 3,
        }
        self._producer = confluent_kafka.Producer(settings)
        self._topic, self._partitions = topic, partitions
        self.is_over = threading.Event()
        self.counts = threading.Event()
        self.seconds: list[float] = []
        """The latency of each commit since `counts` was set."""
        self.failure: Exception | None = None

    def prepare(self) -> None:
        """Initialize the producer id."""
        self._producer.init_transactions(GIVE_UP_SECONDS)

    def run(self) -> None:
        """Commit until stopped."""
        try:
            while not self.is_over.is_set():
                self._producer.begin_transaction()
                for partition in range(self._partitions):
                    self._producer.produce(self._topic, PAYLOAD, partition=partition)
                began = time.perf_counter()
                self._producer.commit_transaction(GIVE_UP_SECONDS)
                if self.counts.is_set():
                    self.seconds.append(time.perf_counter() - began)
        except confluent_kafka.KafkaException as trouble:
            self.failure = trouble


def load(
    running: Cluster, topic: str, partitions: int, producers: int, seconds: float
) -> list[float]:
    """Return the latency of each commit in the measured time."""
    committers = [
        Committer(running.bootstrap, topic, partitions, f"{topic}-{number}")
        for number in range(producers)
    ]
    for committer in committers:
        committer.prepare()
    for committer in committers:
        committer.start()
    time.sleep(WARM_UP_SECONDS)
    for committer in committers:
        committer.counts.set()
    time.sleep(seconds)
    for committer in committers:
        committer.is_over.set()
    for committer in committers:
        committer.join(2 * GIVE_UP_SECONDS)
        if committer.failure is not None:
            raise committer.failure
    return [each for committer in committers for each in committer.seconds]


def main() -> int:
    """Measure every shape for every subject, and print rates, latencies and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 3], choices=[1, 3])
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--producers", type=int, nargs="+", default=[1, 16])
    parser.add_argument(
        "--subject", nargs="+", default=subjects(), choices=[APACHE_KAFKA, KRAFTSIM]
    )
    options = parser.parse_args()
    rates: dict[tuple[str, int, int, int], float] = {}
    for replicas in options.replicas:
        for name in options.subject:
            with cluster(name, replicas, internal_topics(replicas)) as running:
                admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
                for partitions in options.partitions:
                    for producers in options.producers:
                        topic = f"bench-{partitions}-{producers}"
                        admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(
                            GIVE_UP_SECONDS
                        )
                        took = load(running, topic, partitions, producers, options.seconds)
                        rates[name, replicas, partitions, producers] = rate = (
                            len(took) / options.seconds
                        )
                        percentiles = quantiles(took, n=100, method="inclusive")
                        latency = (
                            f"commit p50 {1000 * percentiles[49]:.1f} ms, p99 "
                            f"{1000 * percentiles[98]:.1f} ms"
                        )
                        what = (
                            f"RF {replicas}, {partitions:2d} partitions, {producers:2d} producers"
                        )
                        print(
                            f"{name:20s} {what}: {rate:7.1f} transactions/s, {latency}", flush=True
                        )
    for (name, *shape), rate in rates.items():
        theirs = rates.get((APACHE_KAFKA, shape[0], shape[1], shape[2]))
        if name == KRAFTSIM and theirs:
            print(
                f"RF {shape[0]}, {shape[1]} partitions, {shape[2]} producers: ratio "
                f"{rate / theirs:.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
