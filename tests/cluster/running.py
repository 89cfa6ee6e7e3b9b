"""Clusters of processes for synchronous tests, and the events that the nodes of a run logged."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.spec import ClusterSpec
from tests.cluster.broker_client import broker_client
from tests.cluster.lossy_relay import LossyRelay

QUICK_SESSIONS = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
"""A killed broker can register again once its session has expired: by default that takes 9 s."""


@contextmanager
def running_processes(
    directory: Path,
    *,
    brokers: int = 1,
    settings: Mapping[str, str] = QUICK_SESSIONS,
    **options: Any,
) -> Iterator[ProcessCluster]:
    """Run a cluster of processes; `options` are fields of ClusterSpec."""
    port = free_port_range(brokers, controllers=options.get("controllers", 1))
    spec = ClusterSpec(brokers=brokers, port=port, settings=settings, **options)
    cluster = ProcessCluster(spec, RunDirectory(directory))
    asyncio.run(cluster.start())
    try:
        yield cluster
    finally:
        asyncio.run(cluster.stop())


@contextmanager
def behind_relay(relay: LossyRelay, directory: Path) -> Iterator[ProcessCluster]:
    """Run one broker that advertises a running relay; `cluster.bootstrap` bypasses it."""
    to_relay = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay.port}"}
    with running_processes(directory, node_settings={"broker-1": to_relay}) as cluster:
        relay.target = (cluster.spec.host, cluster.spec.port)
        yield cluster


def address_of(cluster: ProcessCluster, name: str) -> str:
    """Return HOST:PORT of a node."""
    node = cluster.spec.node(name)
    return f"{node.host}:{node.port}"


def restart_and_wait(cluster: ProcessCluster, name: str) -> None:
    """Restart a node that is down and wait until every broker serves."""
    cluster.restart(name)
    asyncio.run(cluster.wait_until_ready())


def logged_events(
    directory: RunDirectory, kind: str, node: str, incarnation: int | None = None
) -> list[dict[str, Any]]:
    """Return the events of a kind that a node logged, in all of its incarnations or in one."""
    wanted = f"{node}.{incarnation or '*'}.jsonl"
    lines = [
        json.loads(line)
        for file in sorted(directory.events.glob(wanted))
        for line in file.read_bytes().split(b"\n")[:-1]
    ]
    return [line for line in lines if line["kind"] == kind]


def create_topic(cluster: ProcessCluster, topic: str, partitions: int) -> None:
    """Create a topic and wait until every broker knows it."""
    with broker_client(address_of(cluster, cluster.spec.broker_names[0])) as broker:
        broker.create_topic(topic, partitions)
    wait_until_known(cluster, topic, partitions)


def wait_until_known(cluster: ProcessCluster, topic: str, partitions: int) -> None:
    """Wait until every broker returns a leader for each partition: CreateTopics completes before
    all brokers have the metadata, as in Kafka.
    """
    for name in cluster.spec.broker_names:
        with broker_client(address_of(cluster, name)) as broker:
            broker.wait_for_leaders(topic, partitions)
