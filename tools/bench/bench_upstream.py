"""Measures what `kraftsim proxy` costs in front of Apache Kafka: throughput of 1 KiB records by
librdkafka and Java, and by a consumer, and the time that it adds to one request.

Direct and through the proxy in turn: a ratio is of two neighbours, and the figure is the median of
the ratios. Ways: the proxy as it is, with a fault that no request of the load matches, and with an
event log. The load of the machine is printed with each round.

python -m tools.bench.bench_upstream [--release 4.4.0] [--records 200000] [--rounds 5]
                                     [--requests 3000] [--clients librdkafka,java,consumer]
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import confluent_kafka
import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.requests import request_chunks
from tests.apache_kafka.harness import SERVER_JVM, ApacheKafka, java_command
from tools.bench.bench_produce import PARTITIONS, RECORD_BYTES, produce
from tools.bench.result import Basis, report_cost, report_rate

DIRECT, PROXY = "direct", "proxy"
GATE, EVENTS = "proxy with a fault", "proxy with an event log"
WAYS = {PROXY: (), GATE: ("--inject", "Vote drop=request"), EVENTS: ("--data",)}
TOPIC = "bench"
CLIENTS = ("librdkafka", "java", "consumer")
MEGABYTE = 1_000_000
JAVA_RELEASE = "4.1.2"
"""The release whose ProducerPerformance is used: the registry has no tools for all."""
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
MIB_PER_SECOND = re.compile(r"records/sec \(([\d.]+) MB/sec\)")
SMALL_VALUE_BYTES = 100
PARTS = ("ApiVersions", "Produce of one record, acks=1")


@dataclass
class Way:
    """A way to the cluster: its bootstrap address, and the process of the proxy."""

    bootstrap: str
    process: subprocess.Popen[str] | None = None

    @property
    def port(self) -> int:
        """The port of the first broker."""
        return int(self.bootstrap.rpartition(":")[2])

    def cpu_seconds(self) -> float:
        """The CPU time of the proxy and the process that records so far; 0 without one."""
        if self.process is None:
            return 0.0
        proxy = psutil.Process(self.process.pid)
        all_times = [each.cpu_times() for each in (proxy, *proxy.children())]
        return float(sum(times.user + times.system for times in all_times))


@contextmanager
def ways_to(upstream: str, root: Path) -> Iterator[dict[str, Way]]:
    """Start a proxy of each kind."""
    found = {DIRECT: Way(upstream)}
    try:
        for name, options in WAYS.items():
            command = [sys.executable, "-u", "-m", "kraftsim", "proxy", "--upstream", upstream]
            command += ["--port", "0", *options, *([str(root / "run")] if name == EVENTS else [])]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None, "it is a pipe"
            bootstrap = process.stdout.readline().strip().removeprefix("bootstrap.servers=")
            found[name] = Way(bootstrap, process)
        yield found
    finally:
        for way in found.values():
            if way.process is not None:
                way.process.send_signal(signal.SIGTERM)
                way.process.wait()


def java_produce(bootstrap: str, records: int) -> float:
    """Return MB/s of Kafka's own producer-performance."""
    command = java_command(
        JAVA_RELEASE,
        PERFORMANCE,
        *("--topic", TOPIC, "--num-records", str(records), "--record-size", str(RECORD_BYTES)),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}"),
        *("acks=all", "enable.idempotence=true"),
        jvm=("-server", "-Xmx512m"),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(MIB_PER_SECOND.findall(done.stdout)[-1]) * 2**20 / MEGABYTE


def consume(bootstrap: str, records: int) -> float:
    """Return MB/s of a consumer of librdkafka that reads so many records from the beginning."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, n, 0) for n in range(PARTITIONS)])
    left, began = records, 0.0
    while left > 0:
        left -= len(consumer.consume(min(left, 10_000), 1.0))
        began = began or time.perf_counter()
    took = time.perf_counter() - began
    consumer.close()
    return records * RECORD_BYTES / MEGABYTE / took


def throughput(client: str, ways: dict[str, Way], options: argparse.Namespace) -> None:
    """Measure one client on all ways, and report."""
    rates: dict[str, list[float]] = defaultdict(list)
    worked: dict[str, float] = defaultdict(float)
    for number in range(options.rounds):
        for name, way in ways.items():
            before = way.cpu_seconds()
            match client:
                case "java":
                    rate = java_produce(way.bootstrap, options.records)
                case "consumer":
                    rate = consume(way.bootstrap, options.records)
                case _:
                    rate = produce(way.bootstrap, TOPIC, options.records, True)
            rates[name].append(rate)
            worked[name] += way.cpu_seconds() - before
        load = os.getloadavg()[0]
        print(
            f"{client} round {number + 1}: "
            + ", ".join(f"{name} {found[-1]:.1f} MB/s" for name, found in rates.items())
            + f"; load {load:.1f}",
            flush=True,
        )
    megabytes = options.rounds * options.records * RECORD_BYTES / MEGABYTE
    for name in list(ways)[1:]:
        variant = f"{client}.{name.replace(' ', '_')}"
        report_rate(
            f"upstream.{variant}",
            f"{client} through the {name}, and direct",
            "MB/s",
            rates[name],
            peer=DIRECT,
            peer_values=rates[DIRECT],
        )
        cost = worked[name] / megabytes * 1000
        title = f"CPU time of the {name}, {client}"
        report_cost(f"upstream.cpu.{variant}", title, "ms per MB", [cost], basis=Basis.CPU)


def frames() -> dict[str, bytes]:
    """The two requests whose latency is measured."""
    batch = bytes(build_batch([Record(key=None, value=b"x" * SMALL_VALUE_BYTES)]))
    rows = [PartitionProduceData(index=0, records=batch)]
    produced = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=rows)],
    )
    versions = ApiVersionsRequest(client_software_name="b", client_software_version="1")
    return {
        PARTS[0]: b"".join(request_chunks(18, 3, 7, "bench", versions)),
        PARTS[1]: b"".join(request_chunks(0, 12, 8, "bench", produced)),
    }


def ask(connection: socket.socket, request: bytes) -> float:
    """Return the microseconds until the answer is there."""
    began = time.perf_counter_ns()
    connection.sendall(request)
    answer = connection.recv(65536)
    while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4]):
        answer += connection.recv(65536)
    return (time.perf_counter_ns() - began) / 1000


def latency(ways: dict[str, Way], requests: int) -> None:
    """Measure one request at a time on one connection of each way, in turn."""
    connections = {
        name: socket.create_connection(("127.0.0.1", way.port)) for name, way in ways.items()
    }
    for connection in connections.values():
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for what, request in frames().items():
        took: dict[str, list[float]] = {name: [] for name in connections}
        for number in range(requests + requests // 10):
            for name, connection in connections.items():
                one = ask(connection, request)
                if number >= requests // 10:
                    took[name].append(one)
        direct = median(took[DIRECT])
        for name in list(ways)[1:]:
            report_cost(
                f"upstream.added.{what.split()[0].lower()}.{name.replace(' ', '_')}",
                f"{what}: time added by the {name}",
                "us",
                [median(took[name]) - direct],
            )
        print(f"  direct {direct:.0f} us; load {os.getloadavg()[0]:.1f}", flush=True)
    for connection in connections.values():
        connection.close()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--release", default="4.4.0")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--ways", default=",".join(WAYS))
    options = parser.parse_args()
    wanted: Sequence[str] = (DIRECT, *options.ways.split(","))
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    began = time.perf_counter()
    with ApacheKafka(options.release, jvm=SERVER_JVM) as kafka:
        topic = NewTopic(TOPIC, PARTITIONS, 1)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([topic])[TOPIC].result(30)
        produce(kafka.bootstrap, TOPIC, options.records, True)  # warm-up, not counted
        with ways_to(kafka.bootstrap, root) as ways:
            chosen = {name: way for name, way in ways.items() if name in wanted}
            latency(chosen, options.requests)
            for client in options.clients.split(",") if options.clients else ():
                throughput(client, chosen, options)
    shutil.rmtree(root)
    print(f"measured in {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
