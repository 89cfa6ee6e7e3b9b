"""Measures librdkafka throughput: 1 KiB and 100 bytes, plain and idempotent, acks=all, one replica
and three, compared with Apache Kafka 3.9.1.

python -m tools.bench.bench_traffic [--seconds 2] [--rounds 2] [--replicas 1,3]
                                    [--sizes 1024,100] [--work produce idempotent consume]
                                    [--only 'kraftsim' ...]

The same client also uses a sink: as many brokers that keep no records, which gives the limit of the
client. Rounds alternate between all of them, and each is preceded by one use of the memory that the
page cache will need. MB are millions of bytes of acknowledged or consumed values. CPU is the CPU
time of all brokers per MB, which is more accurate than MB/s on a machine with other load, and that
of the client.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench.clusters import SINK, Cluster, cluster, touch_memory
from tools.bench.result import Basis, report_cost, report_rate
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects

TOPIC = "bench"
PARTITIONS = 4
MEGABYTE = 1_000_000
SIZES = (1024, 100)
CALLS = 500
WORK = ("produce", "idempotent", "consume")
WARM_UP_SECONDS = 0.7
FILL_SECONDS = 1.5
TOUCHED_MEGABYTES_PER_SECOND = 400
"""What a round of records of 1,024 bytes writes at most, once for each replica."""


class Work(NamedTuple):
    """A workload: 'produce', 'idempotent' or 'consume', record size, and number of replicas."""

    what: str
    size_bytes: int
    replicas: int


class Rate(NamedTuple):
    """MB/s, and CPU milliseconds for a MB: of all brokers, and of the client."""

    rate: float
    cpu_ms: float
    client_cpu_ms: float


def produce(running: Cluster, topic: str, work: Work, seconds: float) -> Rate:
    """Produce records for that many seconds, wait for all of them, and check their number."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": running.bootstrap,
            "log_level": 0,
            "enable.idempotence": work.what == "idempotent",
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 200_000,
        }
    )
    payload = bytes(index * 131 % 251 for index in range(work.size_bytes))
    used, client_used = running.cpu_seconds(), time.process_time()
    began = time.perf_counter()
    sent = 0
    while time.perf_counter() - began < seconds:
        partition = sent // CALLS % PARTITIONS
        try:
            for _ in range(CALLS):
                producer.produce(topic, payload, partition=partition)
                sent += 1
        except BufferError:
            producer.poll(0.005)
    left = producer.flush(60)
    took = time.perf_counter() - began
    assert not left, f"{left} of {sent} records are not acknowledged"
    megabytes = sent * work.size_bytes / MEGABYTE
    return Rate(
        megabytes / took,
        (running.cpu_seconds() - used) * 1000 / megabytes,
        (time.process_time() - client_used) * 1000 / megabytes,
    )


def consume(running: Cluster, topic: str, work: Work, seconds: float) -> Rate:
    """Consume from the start, for that many seconds or until the end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "log_level": 0,
            "group.id": "bench",
            "enable.auto.commit": False,
            # it stops fetching for so long when 100,000 records wait; by default a second, which is
            # then what is measured
            "fetch.queue.backoff.ms": 10,
            "fetch.max.bytes": 52_428_800,
            "max.partition.fetch.bytes": 4_194_304,
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 200_000,
            "check.crcs": False,
        }
    )
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    )
    used, client_used, began, last, read = running.cpu_seconds(), 0.0, 0.0, 0.0, 0
    while not began or time.perf_counter() - began < seconds:
        messages = consumer.consume(20_000, timeout=0.5)
        if not began and messages:
            used, client_used = running.cpu_seconds(), time.process_time()
            began, messages = time.perf_counter(), []
            continue
        if not messages and began:
            break
        read += len(messages)
        last = time.perf_counter()
    spent, client_spent = running.cpu_seconds() - used, time.process_time() - client_used
    consumer.close()
    megabytes = read * work.size_bytes / MEGABYTE
    return Rate(
        megabytes / (last - began), spent * 1000 / megabytes, client_spent * 1000 / megabytes
    )


def stored(bootstrap: str, topic: str) -> int:
    """Return how many records a topic has."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "count"})
    try:
        return sum(
            consumer.get_watermark_offsets(
                confluent_kafka.TopicPartition(topic, number), timeout=30
            )[1]
            for number in range(PARTITIONS)
        )
    finally:
        consumer.close()


def measure(
    names: Sequence[str],
    work: Work,
    clusters: dict[str, Cluster],
    seconds: float,
    rounds: int,
) -> dict[str, list[Rate]]:
    """Run one workload on all subjects in turn, `rounds` times, each time in the opposite order."""
    figures: dict[str, list[Rate]] = defaultdict(list)
    run: Callable[[Cluster, str, Work, float], Rate] = (
        consume if work.what == "consume" else produce
    )
    for number in range(rounds + 1):
        for name in names if number % 2 else names[::-1]:
            topic = topic_of(name, work)
            if number == 0:
                run(clusters[name], topic, work, WARM_UP_SECONDS)
                continue
            if work.what != "consume" and name != SINK:
                cost = touch_memory(round(seconds * TOUCHED_MEGABYTES_PER_SECOND) * work.replicas)
                print(f"  page cache: {cost:.2f} ms of CPU time for a MiB", flush=True)
            figures[name].append(run(clusters[name], topic, work, seconds))
    for name in names:
        values = ", ".join(
            f"{each.rate:.0f} MB/s at {each.cpu_ms:.2f} + {each.client_cpu_ms:.2f} ms"
            for each in figures[name]
        )
        print(
            f"  {name:20s} {work.what:10s} {work.size_bytes:5d} bytes, {work.replicas} replicas: "
            f"{values}",
            flush=True,
        )
    return figures


def topic_of(name: str, work: Work) -> str:
    """Return the topic for a size; a sink has one topic."""
    return TOPIC if name == SINK else f"{TOPIC}-{work.size_bytes}"


def report_work(work: Work, found: dict[str, list[Rate]]) -> None:
    """Report one workload: MB/s, CPU time per MB, and how near the client comes to its limit."""
    name = f"{work.what}.{work.size_bytes}.rf{work.replicas}"
    title = f"librdkafka, {work.what}, {work.size_bytes} bytes, RF {work.replicas}"
    ours, theirs, sink = (found.get(each, []) for each in (KRAFTSIM, APACHE_KAFKA, SINK))
    if not ours:
        return
    rates = [each.rate for each in ours]
    report_rate(
        f"traffic.{name}",
        title,
        "MB/s",
        rates,
        peer=APACHE_KAFKA,
        peer_values=[each.rate for each in theirs],
    )
    report_cost(
        f"traffic.cpu.{name}",
        f"CPU time of the brokers, {work.what}, {work.size_bytes} bytes, RF {work.replicas}",
        "ms per MB",
        [each.cpu_ms for each in ours],
        basis=Basis.CPU,
        peer=APACHE_KAFKA,
        peer_values=[each.cpu_ms for each in theirs],
    )
    report_cost(
        f"traffic.client_cpu.{name}",
        f"CPU time of the client, {work.what}, {work.size_bytes} bytes, RF {work.replicas}",
        "ms per MB",
        [each.client_cpu_ms for each in ours],
        basis=Basis.CPU,
    )
    if sink:
        report_rate(
            f"traffic.beside_sink.{name}",
            f"{title}, beside the same client and a sink",
            "MB/s",
            rates,
            peer=SINK,
            peer_values=[each.rate for each in sink],
        )


def main() -> int:
    """Measure all subjects, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replicas", default="1,3")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--work", nargs="+", default=WORK, choices=WORK)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    names = [name for name in (*subjects(), SINK) if not options.only or name in options.only]
    figures: dict[Work, dict[str, list[Rate]]] = {}
    for replicas in map(int, options.replicas.split(",")):
        brokers = 1 if replicas == 1 else 3
        settings = {"min.insync.replicas": "2"} if replicas == 3 else {}
        with ExitStack() as running:
            clusters = {
                name: running.enter_context(cluster(name, brokers, settings)) for name in names
            }
            for size in map(int, options.sizes.split(",")):
                first = Work(WORK[0], size, replicas)
                for name in names:
                    bootstrap, topic = clusters[name].bootstrap, topic_of(name, first)
                    if name != SINK:
                        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
                        admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result(
                            30
                        )
                    produce(clusters[name], topic, first, FILL_SECONDS)
                    assert name == SINK or stored(bootstrap, topic) > 0, "records are stored"
                for what in options.work:
                    work = Work(what, size, replicas)
                    figures[work] = measure(names, work, clusters, options.seconds, options.rounds)
    for work, found in figures.items():
        report_work(work, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
