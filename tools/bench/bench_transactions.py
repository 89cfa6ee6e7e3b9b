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
from statistics import quantiles
from typing import NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench.clusters import Cluster, cluster
from tools.bench.result import Basis, report_cost, report_rate
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


class Commits(NamedTuple):
    """The latencies of all commits in the measured time, and CPU milliseconds for one of them: of
    all brokers, and of the client.
    """

    seconds: list[float]
    rate: float
    cpu_ms: float
    client_cpu_ms: float


def load(running: Cluster, topic: str, shape: Shape, seconds: float) -> Commits:
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
    return Commits(
        [each for committer in committers for each in committer.seconds],
        count / took,
        1000 * used / count,
        1000 * client_used / count,
    )


def main() -> int:
    """Measure every shape for every subject, and report."""
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
                    figures: dict[str, list[Commits]] = defaultdict(list)
                    for name in names:
                        create_topic(clusters[name], topic_of(shape), shape)
                    for number in range(options.rounds + 1):
                        for name in names if number % 2 else names[::-1]:
                            found = load(clusters[name], topic_of(shape), shape, options.seconds)
                            if number:  # the first one compiles a JVM's code
                                figures[name].append(found)
                    report_shape(shape, figures)
    return 0


def topic_of(shape: Shape) -> str:
    """Return the topic of a workload."""
    return f"bench-{shape.partitions}-{shape.producers}"


def create_topic(running: Cluster, topic: str, shape: Shape) -> None:
    """Create the topic of a workload."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
    wanted = NewTopic(topic, shape.partitions, shape.replicas)
    admin.create_topics([wanted])[topic].result(GIVE_UP_SECONDS)


def report_shape(shape: Shape, figures: dict[str, list[Commits]]) -> None:
    """Report rate, percentiles of the commit latency, and CPU time of one workload."""
    name = f"rf{shape.replicas}.{shape.partitions}p.{shape.producers}"
    title = f"{shape.partitions} partitions, {shape.producers} producers, RF {shape.replicas}"
    ours, theirs = figures.get(KRAFTSIM, []), figures.get(APACHE_KAFKA, [])
    if not ours:
        return
    report_rate(
        f"transactions.rate.{name}",
        f"transactions of {title}",
        "per second",
        [each.rate for each in ours],
        peer=APACHE_KAFKA,
        peer_values=[each.rate for each in theirs],
    )
    for percent in (50, 99):
        report_cost(
            f"transactions.p{percent}.{name}",
            f"p{percent} of a commit, {title}",
            "ms",
            [_percentile_ms(each, percent) for each in ours],
            peer=APACHE_KAFKA,
            peer_values=[_percentile_ms(each, percent) for each in theirs],
        )
    report_cost(
        f"transactions.cpu.{name}",
        f"CPU time of the brokers for a transaction of {title}",
        "ms",
        [each.cpu_ms for each in ours],
        basis=Basis.CPU,
        peer=APACHE_KAFKA,
        peer_values=[each.cpu_ms for each in theirs],
    )


def _percentile_ms(found: Commits, percent: int) -> float:
    return 1000 * quantiles(found.seconds, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    sys.exit(main())
