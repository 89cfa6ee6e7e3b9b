"""Measures how many records per second a share group consumes: one member, one partition or four,
records of 100 bytes and 1 KiB, compared with Apache Kafka 4.4.0.

    python -m tools.bench.bench_share [--records 300000] [--rounds 3] [--sizes 100,1024]
                                      [--partitions 1,4]

librdkafka's share consumer accepts what it got with its next poll. Every round is a new group that
reads the same topic from its start, and alternates between both. CPU is the CPU time of the broker
for 1,000 records; it includes the records of the share coordinator.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.spec import ClusterSpec
from tools.bench.clusters import SETTINGS, Cluster
from tools.bench.result import Basis, report_cost, report_rate
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects

RELEASE = "4.4.0"
PEER = f"Apache Kafka {RELEASE}"
SHARE_SETTINGS = {
    **SETTINGS,
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}
GIVE_UP_SECONDS = 120
WARM_UP_RECORDS = 20_000


class Load(NamedTuple):
    """Size of a record, and number of partitions."""

    size_bytes: int
    partitions: int

    @property
    def topic(self) -> str:
        """The topic that has the records."""
        return f"share-{self.size_bytes}-{self.partitions}"


class Rate(NamedTuple):
    """Records per second, and CPU milliseconds of the broker for 1,000 records."""

    rate: float
    cpu_ms: float


@contextmanager
def ours() -> Iterator[Cluster]:
    """Run a broker that emulates the release."""
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    spec = ClusterSpec(
        brokers=1,
        release=RELEASE.rpartition(".")[0],
        port=free_port_range(1),
        settings=SHARE_SETTINGS,
    )
    nodes = ProcessCluster(spec, RunDirectory(root))
    asyncio.run(nodes.start())
    try:
        yield Cluster(nodes.bootstrap, {1: nodes.pid("broker-1")})
    finally:
        asyncio.run(nodes.stop())
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def theirs() -> Iterator[Cluster]:
    """Run a node of the release."""
    from tests.apache_kafka.harness import SERVER_JVM, ApacheKafka

    with ApacheKafka(RELEASE, dict(SHARE_SETTINGS), SERVER_JVM) as kafka:
        yield Cluster(kafka.bootstrap, {1: kafka.pid})


def fill(running: Cluster, load: Load, records: int) -> None:
    """Create a topic and write its records, in batches of the same size in every cluster."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(load.topic, load.partitions, 1)])[load.topic].result(30)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": running.bootstrap, "log_level": 0, "batch.num.messages": 500}
    )
    payload = bytes(index * 131 % 251 for index in range(load.size_bytes))
    for number in range(records):
        producer.produce(load.topic, payload, partition=number % load.partitions)
        if number % 5000 == 4999:
            assert not producer.flush(60), "all records are acknowledged"
    assert not producer.flush(60), "all records are acknowledged"


def consume(running: Cluster, load: Load, group_id: str, records: int) -> Rate:
    """Let one member of a new group accept so many records; the time begins with the first."""
    resource = ConfigResource(
        ConfigResource.Type.GROUP,
        group_id,
        incremental_configs=[
            ConfigEntry(
                "share.auto.offset.reset",
                "earliest",
                incremental_operation=AlterConfigOpType.SET,
            )
        ],
    )
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(30)
    consumer = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": running.bootstrap, "log_level": 0, "group.id": group_id}
    )
    consumer.subscribe([load.topic])
    give_up_at = time.monotonic() + GIVE_UP_SECONDS
    read = first = 0
    began = used = 0.0
    while read < records:
        assert time.monotonic() < give_up_at, f"{read} of {records} records"
        read += len(consumer.poll(1.0))
        if read and not began:
            used, began, first = running.cpu_seconds(), time.perf_counter(), read
    consumer.commit_sync(30.0)
    took, spent = time.perf_counter() - began, running.cpu_seconds() - used
    consumer.close()
    return Rate((read - first) / took, spent * 1_000_000 / (read - first))


def measure(
    clusters: dict[str, Cluster], load: Load, records: int, rounds: int
) -> dict[str, list[Rate]]:
    """Run one load in all clusters in turn, each time in the opposite order, after a warm-up."""
    figures: dict[str, list[Rate]] = defaultdict(list)
    names = list(clusters)
    for number in range(rounds + 1):
        for name in names if number % 2 else names[::-1]:
            group_id = f"{load.topic}-{number}"
            wanted = records if number else min(records, WARM_UP_RECORDS)
            rate = consume(clusters[name], load, group_id, wanted)
            if number:
                figures[name].append(rate)
                print(
                    f"  {name:20s} {load.topic}: {rate.rate:.0f} records/s, {rate.cpu_ms:.2f} ms",
                    flush=True,
                )
    return figures


def report_load(load: Load, figures: dict[str, list[Rate]]) -> None:
    """Report one load: records per second, and CPU time of the broker."""
    own, peer = figures[KRAFTSIM], figures.get(PEER, [])
    variant = f"{load.size_bytes}.{load.partitions}p"
    words = f"{load.size_bytes} bytes, partitions: {load.partitions}"
    report_rate(
        f"share.consume.{variant}",
        f"share group, one member of librdkafka, {words}",
        "records/s",
        [each.rate for each in own],
        peer=PEER,
        peer_values=[each.rate for each in peer],
    )
    report_cost(
        f"share.cpu.{variant}",
        f"CPU time of the broker, share group, {words}",
        "ms per 1,000 records",
        [each.cpu_ms for each in own],
        basis=Basis.CPU,
        peer=PEER,
        peer_values=[each.cpu_ms for each in peer],
    )


def main() -> int:
    """Measure all loads, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--partitions", default="1,4")
    parser.add_argument("--only", choices=["kraftsim"])
    options = parser.parse_args()
    has_peer = APACHE_KAFKA in subjects() and not options.only
    with ExitStack() as running:
        clusters = {KRAFTSIM: running.enter_context(ours())}
        if has_peer:
            clusters[PEER] = running.enter_context(theirs())
        for size_bytes in map(int, options.sizes.split(",")):
            for partitions in map(int, options.partitions.split(",")):
                load = Load(size_bytes, partitions)
                for each in clusters.values():
                    fill(each, load, options.records)
                report_load(load, measure(clusters, load, options.records, options.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
