"""Clusters for the exactly-once scenario: three brokers with three replicas of everything, ours or
Apache Kafka's.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.conformance.peer import Peer
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.apache_kafka.harness import ApacheKafka
from tests.cluster.running import running_processes

SECONDS = 60.0
REPLICAS = 3
PARTITIONS = 4
QUIET = {"log_level": 0}
SMALL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "250",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
"""Configs of both: short session timeouts, so that a killed node is detected soon."""
GONE = (OSError, TimeoutError)


class Brokers(Protocol):
    """A running cluster."""

    name: str
    bootstrap: str
    killable: tuple[int, ...]
    """Brokers that may be killed: those that are not also controllers."""

    def kill(self, broker_id: int) -> None:
        """Kill a broker with SIGKILL."""
        ...

    def restart(self, broker_id: int) -> None:
        """Restart the broker."""
        ...


class OurBrokers:
    """kraftsim, in processes."""

    name = "kraftsim"
    killable: tuple[int, ...] = (1, 2, 3)

    def __init__(self, cluster: ProcessCluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap

    def kill(self, broker_id: int) -> None:
        """Kill a broker with SIGKILL."""
        self.cluster.kill(f"broker-{broker_id}")

    def restart(self, broker_id: int) -> None:
        """Restart the broker."""
        self.cluster.restart(f"broker-{broker_id}")
        asyncio.run(self.cluster.wait_until_ready())


class TheirBrokers:
    """Apache Kafka 3.9.1: the first broker is also the controller."""

    name = "Apache Kafka"
    killable: tuple[int, ...] = (2, 3)

    def __init__(self, nodes: dict[int, ApacheKafka]) -> None:
        self.nodes = nodes
        self.bootstrap = ",".join(node.bootstrap for node in nodes.values())

    def kill(self, broker_id: int) -> None:
        """Kill a broker with SIGKILL."""
        self.nodes[broker_id].stop(cleanly=False)

    def restart(self, broker_id: int) -> None:
        """Restart the broker."""
        self.nodes[broker_id].start()


@contextmanager
def our_brokers(directory: Path) -> Iterator[OurBrokers]:
    """Run a cluster of ours."""
    with running_processes(directory, brokers=3, settings=SETTINGS) as cluster:
        yield OurBrokers(cluster)
        cluster.require_running()


@contextmanager
def their_brokers() -> Iterator[TheirBrokers]:
    """Run a cluster of Apache Kafka. Raises Missing without Java or Maven."""
    control = free_port_range(1)
    voters = {"controller.quorum.voters": f"1@127.0.0.1:{control}"}
    roles = {1: {}, 2: {"process.roles": "broker"}, 3: {"process.roles": "broker"}}
    nodes = {
        number: ApacheKafka(
            settings={**SETTINGS, **voters, "node.id": str(number), **role},
            jvm=SMALL_JVM,
            controller_port=control if number == 1 else 0,
        )
        for number, role in roles.items()
    }
    try:
        for node in nodes.values():
            node.launch()
        for node in nodes.values():
            node.wait()
        yield TheirBrokers(nodes)
    finally:
        for node in nodes.values():
            node.remove()


def create_topics(bootstrap: str, *topics: str) -> None:
    """Create topics with four partitions, three replicas each, and wait until all are in sync."""
    admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
    give_up_at = time.monotonic() + SECONDS
    while len(admin.list_topics(timeout=SECONDS).brokers) < REPLICAS:
        assert time.monotonic() < give_up_at, "three brokers register"
        time.sleep(0.1)
    for future in admin.create_topics(
        [NewTopic(topic, PARTITIONS, REPLICAS) for topic in topics]
    ).values():
        future.result(SECONDS)
    wait_until_in_sync(bootstrap, *topics)


def wait_until_in_sync(bootstrap: str, *topics: str) -> None:
    """Wait until every partition of some topics has all replicas in sync, as reported by any
    broker; a missing topic does not count as in sync.
    """
    give_up_at = time.monotonic() + SECONDS
    while missing := [row for topic in topics for row in _lagging(bootstrap, topic)]:
        assert time.monotonic() < give_up_at, f"not in sync: {missing}"
        time.sleep(0.05)


def elect_preferred_leaders(bootstrap: str) -> None:
    """Elect the preferred leader of each partition."""
    admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
    admin.elect_leaders(ElectionType.PREFERRED).result(SECONDS)


def _lagging(bootstrap: str, topic: str) -> list[str]:
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    for address in bootstrap.split(","):
        with suppress(*GONE), Peer.at(address, timeout_seconds=5) as peer:
            found = peer.ask(asked, 9, MetadataResponse).topics[0]
            if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.startswith("__"):
                return []
            if found.error_code:
                return [f"{topic}: {found.error_code}"]
            return [
                f"{topic}-{row.partition_index}"
                for row in found.partitions
                if len(row.isr_nodes) < REPLICAS
            ]
    return [f"{topic}: no broker responds"]


def coordinator_of(bootstrap: str, key: str, *, is_group: bool) -> int:
    """Return the id of the coordinator of a group or a transactional id."""
    asked = FindCoordinatorRequest(key=key, key_type=0 if is_group else 1)
    give_up_at = time.monotonic() + SECONDS
    while True:
        for address in bootstrap.split(","):
            with suppress(*GONE), Peer.at(address, timeout_seconds=5) as peer:
                answer = peer.ask(asked, 3, FindCoordinatorResponse)
                if answer.error_code == ErrorCode.NONE:
                    return answer.node_id
        assert time.monotonic() < give_up_at, f"{key} has no coordinator"
        time.sleep(0.1)


def name_for(brokers: Brokers, word: str, *, is_group: bool) -> str:
    """Return a name whose coordinator may be killed."""
    for number in range(100):
        if (
            coordinator_of(brokers.bootstrap, f"{word}-{number}", is_group=is_group)
            in brokers.killable
        ):
            return f"{word}-{number}"
    raise AssertionError("no name has a coordinator that may be killed")
