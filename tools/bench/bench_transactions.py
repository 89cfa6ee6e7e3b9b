"""Measures librdkafka transactions per second and commit latency, with one producer and with 16 in
parallel.

    python -m tools.bench.bench_transactions [--seconds 4] [--rounds 2] [--replicas 1 3]
    [--partitions 1 10] [--producers 1 16]

A transaction is one record of 100 bytes for each partition, and a commit. The commit latency is
that of commit_transaction: it flushes the pending records, sends EndTxn and waits for the response.
Both kinds of cluster have the same settings and as many brokers as replicas, and their rounds
alternate. CPU is that of all brokers, and that of the client, for one transaction: it depends less
on other load.
"""

import argparse
import sys
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from statistics import median, quantiles
from typing import NamedTuple

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


class Shape(NamedTuple):
    """A workload."""

    replicas: int
    partitions: int
    producers: int


class Figure(NamedTuple):
    """The latencies of all commits in the measured time, and CPU milliseconds for one of them: of
    all brokers, and of the client.
    """

    seconds: list[float]
    rate: float
    cpu_ms: float
    client_cpu_ms: float


def load(running: Cluster, topic: str, shape: Shape, seconds: float) -> Figure:
    """Commit for that long."""
    committers = [
        Committer(running.bootstrap, topic, shape.partitions, f"{topic}-{number}")
        for number in range(shape.producers)
    ]
    for committer in committers:
        committer.prepare()
    for committer in committers:
        committer.start()
    time.sleep(WARM_UP_SECONDS)
    used, client_used, began = running.cpu_seconds(), time.process_time(), time.perf_counter()
    for committer in committers:
        committer.counts.set()
    time.sleep(seconds)
    count = sum(len(committer.seconds) for committer in committers)
    used, client_used = running.cpu_seconds() - used, time.process_time() - client_used
    took = time.perf_counter() - began
    for committer in committers:
        committer.is_over.set()
    for committer in committers:
        committer.join(2 * GIVE_UP_SECONDS)
        if committer.failure is not None:
            raise committer.failure
    return Figure(
        [each for committer in committers for each in committer.seconds],
        count / took,
        1000 * used / count,
        1000 * client_used / count,
    )


def main() -> int:
    """Measure every shape for every subject, and print rates, latencies and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 3], choices=[1, 3])
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--producers", type=int, nargs="+", default=[1, 16])
    parser.add_argument(
        "--subject", nargs="+", default=subjects(), choices=[APACHE_KAFKA, KRAFTSIM]
    )
    options = parser.parse_args()
    names = options.subject
    for replicas in options.replicas:
        with ExitStack() as opened:
            clusters = {
                name: opened.enter_context(cluster(name, replicas, internal_topics(replicas)))
                for name in names
            }
            for partitions in options.partitions:
                for producers in options.producers:
                    shape = Shape(replicas, partitions, producers)
                    figures: dict[str, list[Figure]] = defaultdict(list)
                    for name in names:
                        create_topic(clusters[name], topic_of(shape), shape)
                    for number in range(options.rounds + 1):
                        for name in names if number % 2 else names[::-1]:
                            found = load(clusters[name], topic_of(shape), shape, options.seconds)
                            if number:  # the first one compiles a JVM's code
                                figures[name].append(found)
                    print("\n".join(summary(shape, figures)), flush=True)
    return 0


def topic_of(shape: Shape) -> str:
    """Return the topic of a workload."""
    return f"bench-{shape.partitions}-{shape.producers}"


def create_topic(running: Cluster, topic: str, shape: Shape) -> None:
    """Create the topic of a workload."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
    wanted = NewTopic(topic, shape.partitions, shape.replicas)
    admin.create_topics([wanted])[topic].result(GIVE_UP_SECONDS)


def summary(shape: Shape, figures: dict[str, list[Figure]]) -> list[str]:
    """Return a line for each subject, and the ratio."""
    what = (
        f"RF {shape.replicas}, {shape.partitions:2d} partitions, {shape.producers:2d} producers: "
    )
    lines, rates = [], {}
    for name, found in figures.items():
        rates[name] = median(each.rate for each in found)
        percentiles = quantiles(
            [each for figure in found for each in figure.seconds], n=100, method="inclusive"
        )
        cpu_ms = median(each.cpu_ms for each in found)
        client_cpu_ms = median(each.client_cpu_ms for each in found)
        lines.append(
            f"{name:20s} {what}{rates[name]:7.1f} transactions/s "
            f"({', '.join(f'{each.rate:.1f}' for each in found)}), commit p50 "
            f"{1000 * percentiles[49]:.1f} ms, p99 {1000 * percentiles[98]:.1f} ms, "
            f"CPU {cpu_ms:.2f} + {client_cpu_ms:.2f} ms"
        )
    if KRAFTSIM in rates and APACHE_KAFKA in rates:
        lines.append(f"{what}ratio {rates[KRAFTSIM] / rates[APACHE_KAFKA]:.2f}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
