"""Kafka Streams with group.protocol=streams and exactly_once_v2 counts words on a cluster of three
controllers and three brokers; the coordinator of its group is killed meanwhile.
"""

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from kraftsim.cluster.processes import ProcessCluster
from tests.apache_kafka.class_path import PROJECT_ROOT, java
from tests.apache_kafka.harness import run_tool
from tests.clients.transform_app.clusters import SETTINGS
from tests.clients.transform_app.java import COPIER_JVM, build
from tests.cluster.broker_client import broker_client
from tests.cluster.running import running_processes

pytestmark = pytest.mark.interop
PROJECT = PROJECT_ROOT / "tests" / "clients" / "streams_groups"
RELEASES = {"4.2.2": "4.2", "4.4.0": "4.4"}
"""Release of Kafka Streams -> that of the cluster."""
PARTITIONS, LINES, SECONDS = 3, 200, 90.0
WORDS = ("ant", "bee", "cat", "dog", "emu", "fox")
QUIET = {"log_level": 0}
STREAMS_SETTINGS = {
    **SETTINGS,
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.min.session.timeout.ms": "3000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.heartbeat.interval.ms": "500",
}


@pytest.fixture(params=RELEASES, ids=lambda release: f"streams-{release}")
def release(request: pytest.FixtureRequest) -> str:
    """The release of Kafka Streams."""
    found = request.param
    assert isinstance(found, str)
    return found


@pytest.fixture
def streams_cluster(release: str, tmp_path: Path) -> Iterator[ProcessCluster]:
    """Three controllers and three brokers as processes."""
    with running_processes(
        tmp_path / "run",
        controllers=3,
        brokers=3,
        release=RELEASES[release],
        settings=STREAMS_SETTINGS,
    ) as running:
        yield running
        running.require_running()


@contextmanager
def instance(cluster: ProcessCluster, jars: str, directory: Path) -> Iterator[None]:
    """Run one instance of the application, and stop it at the end."""
    words = [cluster.bootstrap, "words", "lines", "counts", str(directory)]
    command = [
        str(java()),
        *COPIER_JVM,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        jars,
        "kraftsim.WordCount",
        *words,
    ]
    with (directory.with_suffix(".log")).open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def produce(cluster: ProcessCluster, start: int) -> Counter[str]:
    """Write lines, and return how often each word is in them."""
    producer = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap, "acks": "all"})
    counts: Counter[str] = Counter()
    for number in range(start, start + LINES):
        line = [WORDS[number * step % len(WORDS)] for step in (1, 2, 5)]
        counts.update(line)
        producer.produce("lines", " ".join(line), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0
    return counts


def wait_for(cluster: ProcessCluster, counts: Counter[str]) -> None:
    """Wait until the last committed count of each word is the expected one; none may be higher."""
    reader = Consumer(
        {
            **QUIET,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader.subscribe(["counts"])
    seen: dict[str, int] = {}
    give_up_at = time.monotonic() + SECONDS
    while seen != counts:
        assert time.monotonic() < give_up_at, f"{seen} instead of {counts}"
        message = reader.poll(1.0)
        if message is None or message.error() is not None:
            continue
        key, value = message.key(), message.value()
        assert key is not None and value is not None
        word, count = key.decode(), int(value)
        assert seen.get(word, 0) < count <= counts[word], f"{word} counted twice"
        seen[word] = count
    reader.close()


def test_words_are_counted_exactly_once(
    streams_cluster: ProcessCluster, release: str, tmp_path: Path
) -> None:
    cluster = streams_cluster
    jars = build(
        PROJECT, PROJECT_ROOT / "build" / f"streams-groups-{release}", kafka_version=release
    )
    with broker_client(cluster.bootstrap.partition(",")[0]) as broker:
        for topic in ("lines", "counts"):
            broker.create_topic(topic, PARTITIONS, replicas=3)
    with ExitStack() as running:
        counts = produce(cluster, 0)
        for name in ("one", "two"):
            running.enter_context(instance(cluster, jars, tmp_path / name))
        wait_for(cluster, counts)
        coordinator = coordinator_of(cluster)
        cluster.kill(coordinator)
        counts += produce(cluster, LINES)
        wait_for(cluster, counts)
        cluster.restart(coordinator)
        counts += produce(cluster, 2 * LINES)
        wait_for(cluster, counts)
        look_with_tool(cluster)


def coordinator_of(cluster: ProcessCluster) -> str:
    """Return the name of the node that coordinates the group."""
    described = tool(cluster, "--describe", "--group", "words", "--state")
    row = next(line for line in described.splitlines() if line.startswith("words"))
    return f"broker-{row.partition('(')[2].partition(')')[0]}"


def look_with_tool(cluster: ProcessCluster) -> None:
    """List and describe the group with kafka-streams-groups.sh of 4.4."""
    assert "words" in tool(cluster, "--list").split()
    state = tool(cluster, "--describe", "--group", "words", "--state")
    assert "Stable" in state
    members = tool(cluster, "--describe", "--group", "words", "--members")
    rows = [line for line in members.splitlines() if line.startswith("words")]
    assert len(rows) == 4, members
    offsets = tool(cluster, "--describe", "--group", "words")
    assert "words-counts-repartition" in offsets and "lines" in offsets


def tool(cluster: ProcessCluster, *arguments: str) -> str:
    """Run kafka-streams-groups.sh."""
    return run_tool("4.4.0", "streams-groups", "--bootstrap-server", cluster.bootstrap, *arguments)
