"""Clusters of one or three brokers to measure, kraftsim and Apache Kafka 3.9.1, with equal
settings, the CPU time of their processes, and servers that do nothing for the same clients.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.spec import ClusterSpec
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM

SINK = "sink"
"""Brokers that keep no records: what the client reaches with them is its limit on this machine."""
CONSTANT = "constant response"
"""A node whose only API is InitProducerId, with a constant response."""
PAGES = os.urandom(1024 * 1024)
SETTINGS = {
    "log.retention.check.interval.ms": "300000",
    "num.replica.fetchers": "1",
    "replica.fetch.wait.max.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}
"""The settings of both, besides their defaults."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster.

    `brokers`: id -> process; `kill` kills one of them, `restart` starts it again.
    """

    bootstrap: str
    brokers: dict[int, int]
    kill: Callable[[int], None] = field(default=lambda broker_id: None)
    restart: Callable[[int], None] = field(default=lambda broker_id: None)

    def cpu_seconds(self) -> float:
        """Return the CPU time of the brokers' processes so far."""
        used = 0.0
        for pid in self.brokers.values():
            times = psutil.Process(pid).cpu_times()
            used += times.user + times.system
        return used


def touch_memory(megabytes: int) -> float:
    """Let the page cache use that much memory once, and release it; return CPU milliseconds for a
    MiB.

    The host of a virtual machine provides memory at its first use, which costs ten times the write
    itself: a round that is the first to use its memory measures the host.
    """
    began = time.process_time()
    with tempfile.NamedTemporaryFile(prefix="kraftsim-bench-", buffering=0) as file:
        for _ in range(megabytes):
            file.write(PAGES)
        return (time.process_time() - began) * 1000 / megabytes


@contextmanager
def cluster(
    name: str, brokers: int = 1, settings: dict[str, str] | None = None
) -> Iterator[Cluster]:
    """Run a cluster of one kind: one controller and the brokers; a single node of Apache Kafka is
    both.
    """
    answer = {**SETTINGS, **(settings or {})}
    kinds = {KRAFTSIM: _ours, APACHE_KAFKA: _theirs, SINK: _sink, CONSTANT: _constant}
    with kinds[name](brokers, answer) as running:
        yield running


@contextmanager
def _ours(brokers: int, settings: dict[str, str]) -> Iterator[Cluster]:
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    spec = ClusterSpec(brokers=brokers, port=free_port_range(brokers), settings=settings)
    nodes = ProcessCluster(spec, RunDirectory(root))
    asyncio.run(nodes.start())
    try:
        pids = {number: nodes.pid(f"broker-{number}") for number in range(1, brokers + 1)}
        yield Cluster(
            nodes.bootstrap,
            pids,
            lambda broker_id: nodes.kill(f"broker-{broker_id}"),
            lambda broker_id: nodes.restart(f"broker-{broker_id}"),
        )
    finally:
        asyncio.run(nodes.stop())
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _theirs(brokers: int, settings: dict[str, str]) -> Iterator[Cluster]:
    from tests.apache_kafka.class_path import class_path
    from tests.apache_kafka.harness import SERVER_JVM, ApacheKafka

    class_path("3.9.1")
    with ExitStack() as running:
        if brokers == 1:
            both = running.enter_context(ApacheKafka("3.9.1", dict(settings), SERVER_JVM))
            yield Cluster(both.bootstrap, {1: both.pid})
            return
        controller_port = free_port_range(1) + 100
        voters = {"controller.quorum.voters": f"101@127.0.0.1:{controller_port}"}
        nodes = [
            ApacheKafka(
                "3.9.1",
                {"process.roles": "controller", "node.id": "101", **voters},
                SERVER_JVM,
                controller_port=controller_port,
            )
        ]
        replicas = {"offsets.topic.replication.factor": str(brokers), **settings, **voters}
        for number in range(1, brokers + 1):
            nodes.append(
                ApacheKafka(
                    "3.9.1",
                    {"process.roles": "broker", "node.id": str(number), **replicas},
                    SERVER_JVM,
                )
            )
        for node in nodes:
            running.callback(node.remove)
            node.launch()
        for node in nodes:
            node.wait()
        pids = {number: node.pid for number, node in enumerate(nodes[1:], 1)}
        yield Cluster(
            ",".join(node.bootstrap for node in nodes[1:]),
            pids,
            lambda broker_id: nodes[broker_id].stop(cleanly=False),
            lambda broker_id: nodes[broker_id].start(),
        )


@contextmanager
def _sink(brokers: int, settings: dict[str, str]) -> Iterator[Cluster]:
    first_port = free_port_range(brokers)
    ports = range(first_port, first_port + brokers)
    with ExitStack() as running:
        pids = {}
        for number in range(1, brokers + 1):
            process = running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tools.bench.sink", str(number), *map(str, ports)],
                    stdout=subprocess.PIPE,
                )
            )
            running.callback(process.terminate)
            assert process.stdout is not None and process.stdout.readline(), "it listens"
            pids[number] = process.pid
        yield Cluster(",".join(f"127.0.0.1:{port}" for port in ports), pids)


@contextmanager
def _constant(brokers: int, settings: dict[str, str]) -> Iterator[Cluster]:
    with subprocess.Popen(
        [sys.executable, "-m", "tools.bench.frames_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        try:
            yield Cluster(f"127.0.0.1:{int(process.stdout.readline())}", {1: process.pid})
        finally:
            process.stdin.close()
