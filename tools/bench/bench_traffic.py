"""Measures librdkafka throughput: 1 KiB and 100 bytes, plain and idempotent, acks=all, one replica
and three, compared with Apache Kafka 3.9.1.

python -m tools.bench.bench_traffic [--seconds 2] [--rounds 2] [--replicas 1,3]
                                    [--only 'kraftsim' ...]

With one replica the same client also writes to a sink, which gives the limit of the client. MB are
millions of bytes of acknowledged or consumed values. CPU is the CPU time of all brokers per MB,
which is more accurate than MB/s on a machine with other load.
"""

import argparse
import sys
import time
from collections import defaultdict
from statistics import median
from typing import NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tools.bench.clusters import SINK, Cluster, cluster
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects

TOPIC = "bench"
PARTITIONS = 4
MEGABYTE = 1_000_000
SIZES = (1024, 100)
CALLS = 500
WARM_UP_SECONDS = 0.7
QUIET_SECONDS = 10.0


class Work(NamedTuple):
    """A workload: 'produce', 'idempotent' or 'consume', record size, and number of replicas."""

    what: str
    size_bytes: int
    replicas: int


class Figure(NamedTuple):
    """MB/s, and CPU milliseconds of all brokers for a MB."""

    rate: float
    cpu_ms: float


def produce(running: Cluster, topic: str, work: Work, seconds: float) -> Figure:
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
    used = running.cpu_seconds()
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
    return Figure(megabytes / took, (running.cpu_seconds() - used) * 1000 / megabytes)


def consume(running: Cluster, topic: str, work: Work, seconds: float) -> Figure:
    """Consume from the start, for that many seconds or until the end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "log_level": 0,
            "group.id": "bench",
            "enable.auto.commit": False,
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
    used, began, last, read = running.cpu_seconds(), 0.0, 0.0, 0
    while not began or time.perf_counter() - began < seconds:
        messages = consumer.consume(20_000, timeout=0.5)
        if not began and messages:
            used, began, messages = running.cpu_seconds(), time.perf_counter(), []
            continue
        if not messages and began:
            break
        read += len(messages)
        last = time.perf_counter()
    spent = running.cpu_seconds() - used
    consumer.close()
    megabytes = read * work.size_bytes / MEGABYTE
    return Figure(megabytes / (last - began), spent * 1000 / megabytes)


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
    name: str,
    replicas: int,
    seconds: float,
    rounds: int,
    figures: dict[tuple[str, Work], list[Figure]],
) -> None:
    """Run every workload on one subject."""
    with cluster(
        name,
        1 if replicas == 1 else 3,
        {"min.insync.replicas": "2"} if replicas == 3 else {} if name != SINK else None,
    ) as running:
        for size in SIZES:
            topic = TOPIC if name == SINK else f"{TOPIC}-{size}"
            if name != SINK:
                admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
                admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result(30)
            produce(running, topic, Work("produce", size, replicas), WARM_UP_SECONDS)
            for work in (Work("produce", size, replicas), Work("idempotent", size, replicas)):
                figures[name, work] += [
                    produce(running, topic, work, seconds) for _ in range(rounds)
                ]
            if name != SINK:
                assert stored(running.bootstrap, topic) > 0, "acknowledged records are stored"
                work = Work("consume", size, replicas)
                consume(running, topic, work, WARM_UP_SECONDS)
                figures[name, work] += [
                    consume(running, topic, work, seconds) for _ in range(rounds)
                ]
            for (subject, work), found in figures.items():
                if subject == name and work.size_bytes == size and work.replicas == replicas:
                    values = ", ".join(
                        f"{each.rate:.0f} MB/s at {each.cpu_ms:.2f} ms" for each in found
                    )
                    print(
                        f"  {name:20s} {work.what:10s} {size:5d} bytes, {replicas} replicas: "
                        f"{values}",
                        flush=True,
                    )


def main() -> int:
    """Measure every subject in turn, and print medians and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--replicas", default="1,3")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    figures: dict[tuple[str, Work], list[Figure]] = defaultdict(list)
    for replicas in map(int, options.replicas.split(",")):
        for name in (*subjects(), *((SINK,) if replicas == 1 else ())):
            if not options.only or name in options.only:
                measure(name, replicas, options.seconds, options.rounds, figures)
    print(
        "\n| records | replicas | kraftsim | Apache Kafka 3.9.1 | ratio | the client against a "
        "sink | CPU ms per MB: kraftsim | Apache Kafka |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for work in dict.fromkeys(work for _, work in figures):
        rates = {
            name: median(each.rate for each in figures[name, work])
            for name in (KRAFTSIM, APACHE_KAFKA, SINK)
            if (name, work) in figures
        }
        spent = {name: median(each.cpu_ms for each in figures[name, work]) for name in rates}
        ours, theirs, sink = (rates.get(name) for name in (KRAFTSIM, APACHE_KAFKA, SINK))
        ratio = f"{ours / theirs:.2f}" if ours and theirs else ""
        share = (
            f"{sink:.0f} MB/s" + (f" ({100 * ours / sink:.0f} %)" if ours else "") if sink else ""
        )
        values = [f"{each:.0f} MB/s" if each else "" for each in (ours, theirs)]
        cpu = [f"{spent[name]:.2f}" if name in spent else "" for name in (KRAFTSIM, APACHE_KAFKA)]
        print(
            f"| {work.what}, {work.size_bytes} bytes | {work.replicas} | {values[0]} | "
            f"{values[1]} | {ratio} | {share} | {cpu[0]} | {cpu[1]} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
