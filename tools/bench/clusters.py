"""Clusters of one or three brokers to measure, kraftsim and Apache Kafka 3.9.1, with equal
settings, and the CPU time of their processes.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
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


@contextmanager
def cluster(
    name: str, brokers: int = 1, settings: dict[str, str] | None = None
) -> Iterator[Cluster]:
    """Run a cluster of one kind: one controller and the brokers; a single node of Apache Kafka is
    both.
    """
    answer = {**SETTINGS, **(settings or {})}
    with {KRAFTSIM: _ours, APACHE_KAFKA: _theirs, SINK: _sink}[name](brokers, answer) as running:
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
    assert brokers == 1, f"a sink has one broker and no settings: {settings}"
    with subprocess.Popen(
        [sys.executable, "-m", "tools.bench.sink"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None, "it is piped"
        port = int(process.stdout.readline())
        try:
            yield Cluster(f"127.0.0.1:{port}", {1: process.pid})
        finally:
            process.terminate()
