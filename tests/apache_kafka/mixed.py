"""Clusters with nodes of kraftsim and of Apache Kafka: how to start them, and requests to both
kinds.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.spec import ClusterSpec, properties_text
from kraftsim.conformance.peer import Peer
from protocol.errors import ErrorCode
from protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
)
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.harness import ApacheKafka, dump_log
from tests.cluster.broker_client import broker_client
from tests.cluster.running import QUICK_SESSIONS, address_of

METADATA_LOG = "__cluster_metadata-0/00000000000000000000.log"
METADATA_LOG_ASKED = DescribeQuorumTopic(
    topic_name="__cluster_metadata", partitions=[DescribeQuorumPartition(partition_index=0)]
)
SMALL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
COMMON_METADATA_VERSION = "3.9-IV0"
"""The cluster id of all nodes of a mixed cluster; the first leader writes it to the log."""
OF_A_CONTROLLER = (
    "NotControllerException",
    "Unexpected error handling request",
    "controller event queue overloaded",
)
"""Errors that a controller of Apache Kafka logs for requests, even its own, while it is not the
leader, and on a slow machine.
"""
SIGNS = (" ERROR ", "FATAL", "Exception")
ABOUT_LOGGING = "Reconfiguration failed: No configuration found"
"""4.x logs this without a logging configuration."""
SECONDS = 30.0
QUIET = {"log_level": 0}


@contextmanager
def our_cluster(
    directory: Path,
    *,
    port: int,
    settings: Mapping[str, str] | None = None,
    timeout_seconds: float = SECONDS,
    **options: Any,
) -> Iterator[ProcessCluster]:
    """Run kraftsim's part of a cluster; `options` are fields of ClusterSpec."""
    spec = ClusterSpec(port=port, settings={**QUICK_SESSIONS, **(settings or {})}, **options)
    cluster = ProcessCluster(spec, RunDirectory(directory))
    asyncio.run(cluster.start(timeout_seconds=timeout_seconds))
    try:
        yield cluster
    finally:
        asyncio.run(cluster.stop())


@dataclass(frozen=True)
class Pair:
    """The release of Apache Kafka, the release that kraftsim emulates, and the metadata.version
    (empty: that of their release).
    """

    theirs: str
    ours: str
    level: str = COMMON_METADATA_VERSION


PAIRS = (
    Pair(DEFAULT_RELEASE, "3.9"),
    Pair(NEWEST_RELEASE, "3.9"),
    Pair(NEWEST_RELEASE, NEWEST_RELEASE.rpartition(".")[0], ""),
)


@contextmanager
def apache(
    release: str,
    settings: Mapping[str, str],
    controller_port: int = 0,
    *,
    wait: bool = True,
    level: str = COMMON_METADATA_VERSION,
) -> Iterator[ApacheKafka]:
    """Run a node of Apache Kafka; skips without Java or Maven.

    Without `wait` the caller calls its `wait`.
    """
    node = ApacheKafka(
        release,
        {**QUICK_SESSIONS, **settings},
        SMALL_JVM,
        controller_port=controller_port,
        metadata_version=level,
    )
    node.launch()
    try:
        if wait:
            node.wait()
        yield node
    finally:
        print(
            f"what Apache Kafka {release} said:",
            (node.directory / "server.log").read_text(errors="replace")[-4000:],
        )
        node.remove()


class OurNode:
    """One `kraftsim node` from a property file, as a user starts it beside an Apache Kafka.

    Use as a context manager.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str],
        *,
        data: Path | None = None,
        exists: bool = False,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=exists)
        self.file = directory / "node.properties"
        self.file.write_text(
            properties_text(
                {
                    **properties,
                    "log.dirs": str(data or directory / "data"),
                    "kraftsim.events.dir": str(directory / "events"),
                }
            )
        )
        self.log = directory / "node.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "OurNode":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the node and return when it logs that it serves."""
        said = self._times_serving()
        with open(self.log, "ab") as log:
            command = [sys.executable, "-m", "kraftsim", "node", str(self.file)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(
            lambda: (
                self._times_serving() > said
                or self._process is None
                or self._process.poll() is not None
            ),
            "our node serves",
        )
        assert self._process.poll() is None, self.log.read_text()

    def stop(self, *, cleanly: bool = True) -> None:
        """Stop the node with SIGTERM or SIGKILL."""
        if self._process is not None:
            (self._process.terminate if cleanly else self._process.kill)()
            self._process.wait(SECONDS)
            self._process = None

    def _times_serving(self) -> int:
        return self.log.read_text().count("event=serving") if self.log.exists() else 0


def logged_errors(node: ApacheKafka, *, but: tuple[str, ...] = ()) -> list[str]:
    """Return the errors that a node of Apache Kafka has logged since its first start, without lines
    that contain certain words.
    """
    lines = (node.directory / "server.log").read_text(errors="replace").splitlines()
    found = [
        line
        for line in lines
        if not line.startswith("\tat ") and any(sign in line for sign in SIGNS)
    ]
    return [line for line in found if not any(words in line for words in (ABOUT_LOGGING, *but))]


def voters_text(voters: Mapping[int, int]) -> str:
    """Return `controller.quorum.voters` of controllers on this machine, by id and port."""
    return ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in voters.items())


def mixed_port(controllers: int = 3) -> int:
    """Return the first of the ports for a cluster of two brokers and this many controllers of
    either kind.
    """
    return free_port_range(2, controllers=controllers)


def wait_until(holds: Callable[[], object], what: str, seconds: float = SECONDS) -> float:
    """Wait until a condition is true; return the seconds that it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - began


def leader_of(controllers: Iterable[str]) -> int | None:
    """Return the id of the active controller, as reported by the controllers that respond; None
    while there is none.
    """
    request = DescribeQuorumRequest(topics=[METADATA_LOG_ASKED])
    for address in controllers:
        try:
            with Peer.at(address, timeout_seconds=2) as peer:
                answer = peer.ask(request, 1, DescribeQuorumResponse)
        except (OSError, TimeoutError):
            continue
        if (
            answer.error_code == ErrorCode.NONE
            and answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        ):
            return answer.topics[0].partitions[0].leader_id
    return None


def new_leader(controllers: Iterable[str], *, among: Iterable[int]) -> int:
    """Wait until one of the given controllers is active, and return its id."""
    addresses, wanted = list(controllers), set(among)
    found: list[int | None] = []

    def one_leads() -> bool:
        found.append(leader_of(addresses))
        return found[-1] in wanted

    wait_until(one_leads, f"one of {sorted(wanted)} leads")
    assert found[-1] is not None
    return found[-1]


def controllers_of(cluster: ProcessCluster) -> list[str]:
    """Return the addresses of our controllers."""
    return [address_of(cluster, name) for name in cluster.spec.controller_names]


def metadata_records(*files: Path, release: str) -> list[dict[str, Any]]:
    """Return the records of a metadata log as decoded by Kafka's own tool: `type`, `version`,
    `data`.
    """
    lines = dump_log(*files, release=release, metadata=True).splitlines()
    return [json.loads(line.partition("payload: ")[2]) for line in lines if "payload: {" in line]


def metadata_of(address: str, topic: str) -> tuple[Any, ...]:
    """Return what a broker reports about the cluster and a topic: the fields that must be the same
    on all brokers.
    """
    with broker_client(address) as broker:
        answer = broker.metadata(topic)
    brokers = sorted((broker.node_id, broker.host, broker.port) for broker in answer.brokers)
    found = answer.topics[0]
    partitions = sorted(
        (
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
        )
        for each in found.partitions
    )
    return answer.cluster_id, brokers, found.error_code, bytes(found.topic_id), partitions


def leaders_of(address: str, topic: str) -> list[int]:
    """Return the leader of each partition of a topic, as reported by a broker."""
    return [leader for _, leader, *_ in metadata_of(address, topic)[-1]]


def wait_for_leaders(address: str, topic: str, leaders: set[int]) -> None:
    """Wait until a broker reports exactly these leaders for the partitions of a topic; -1: no
    leader.
    """
    give_up_at = time.monotonic() + SECONDS
    while set(found := leaders_of(address, topic)) != leaders:
        assert time.monotonic() < give_up_at, f"{sorted(leaders)} should lead: {found}"
        time.sleep(0.05)


class Workload:
    """librdkafka's idempotent producer on every partition of a topic, over all brokers; `check`
    reads everything back.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._producer = Producer(
            {**QUIET, "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )
        self._failures: list[KafkaError] = []
        self.count = 0

    def write(self, count: int) -> None:
        """Send this many records, round-robin over all partitions."""
        for _ in range(count):
            self._producer.produce(
                self._topic,
                b"%d" % self.count,
                partition=self.count % self._partitions,
                on_delivery=self._on_delivery,
            )
            self._producer.poll(0)
            self.count += 1

    def flush(self) -> None:
        """Wait until every record is acknowledged."""
        assert self._producer.flush(SECONDS) == 0, "records are still under way"
        assert not self._failures, self._failures

    def check(self) -> None:
        """Check that every record exists once, in the order of production to its partition."""
        consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": self._bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
            }
        )
        consumer.assign(
            [
                TopicPartition(self._topic, number, OFFSET_BEGINNING)
                for number in range(self._partitions)
            ]
        )
        read: dict[int, list[int]] = {number: [] for number in range(self._partitions)}
        give_up_at = time.monotonic() + SECONDS
        while (count := sum(map(len, read.values()))) < self.count:
            assert time.monotonic() < give_up_at, f"{count} of {self.count} records were read"
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                value, partition = message.value(), message.partition()
                assert value is not None and partition is not None
                read[partition].append(int(value))
        assert not consumer.consume(1, 0.3), "no record is duplicated"
        consumer.close()
        assert read == {
            number: list(range(number, self.count, self._partitions))
            for number in range(self._partitions)
        }

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failures.append(error)
