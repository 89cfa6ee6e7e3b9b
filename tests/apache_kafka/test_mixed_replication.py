"""Partitions with three replicas, one of them on Apache Kafka: ours replicate from theirs and vice
versa, and the bytes are identical.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from kraftsim.cluster.processes import ProcessCluster
from tests.apache_kafka.harness import ApacheKafka, dump_log
from tests.apache_kafka.mixed import (
    PAIRS,
    Workload,
    apache,
    logged_errors,
    metadata_of,
    mixed_port,
    our_cluster,
    wait_until,
)
from tests.cluster.running import address_of

pytestmark = pytest.mark.interop
FIRST, SECOND, THEIRS = 1, 2, 7
REPLICAS = {FIRST, SECOND, THEIRS}
PARTITIONS = 6
RECORDS = 1500
SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "4000"}
WHILE_BROKERS_DIE = (
    "Connection to node",
    "Error sending fetch request",
    "java.net.ConnectException",
    "java.io.IOException",
    "Error for partition",
)
"""Errors that a follower of Apache Kafka logs while the leader that it fetches from is down."""


@dataclass(frozen=True)
class Mixed:
    """The cluster."""

    ours: ProcessCluster
    theirs: ApacheKafka

    @property
    def addresses(self) -> dict[int, str]:
        """The address of each broker."""
        return {
            FIRST: address_of(self.ours, "broker-1"),
            SECOND: address_of(self.ours, "broker-2"),
            THEIRS: self.theirs.bootstrap,
        }

    def create(self, topic: str) -> Workload:
        """Create a topic with three replicas per partition, and return its workload."""
        self.theirs.tool(
            "topics",
            "--create",
            "--if-not-exists",
            "--topic",
            topic,
            "--partitions",
            str(PARTITIONS),
            "--replication-factor",
            "3",
        )
        self.wait_for(topic, REPLICAS)
        return Workload(",".join(self.addresses.values()), topic, PARTITIONS)

    def wait_for(self, topic: str, in_sync: set[int]) -> None:
        """Wait until every in-sync broker reports exactly this ISR for every partition."""

        def are_in_sync(address: str) -> bool:
            return self._in_sync(address, topic) == [in_sync] * PARTITIONS

        for broker_id in in_sync:
            wait_until(
                partial(are_in_sync, self.addresses[broker_id]),
                f"{sorted(in_sync)} are in sync, says {broker_id}",
            )

    def elect(self, topic: str) -> None:
        """Elect the preferred leader of every partition."""
        self.theirs.tool(
            "leader-election", "--election-type", "preferred", "--all-topic-partitions"
        )
        wait_until(
            lambda: {row[1] for row in metadata_of(self.theirs.bootstrap, topic)[-1]} == REPLICAS,
            "every broker is leader of a partition",
        )

    def logs(self, topic: str, partition: int) -> dict[int, bytes]:
        """Return the bytes of one partition's log on each broker."""
        name = f"{topic}-{partition}/00000000000000000000.log"
        directories: dict[int, Path] = {
            FIRST: self.ours.directory.data("broker-1"),
            SECOND: self.ours.directory.data("broker-2"),
        }
        return {
            broker_id: (path / name).read_bytes()
            for broker_id, path in {**directories, THEIRS: self.theirs.data}.items()
        }

    def wait_for_equal_logs(self, topic: str) -> None:
        """Wait until all three replicas of every partition have the same bytes."""

        def are_equal(partition: int) -> bool:
            return len(set(self.logs(topic, partition).values())) == 1

        for partition in range(PARTITIONS):
            wait_until(
                partial(are_equal, partition), f"the replicas of {topic}-{partition} are equal"
            )

    def _in_sync(self, address: str, topic: str) -> list[set[int]]:
        try:
            return [set(in_sync) for *_, in_sync in metadata_of(address, topic)[-1]]
        except OSError:
            return []  # it is starting


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: f"{pair.theirs}-{pair.ours}")
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mixed]:
    """Two brokers of ours and one of Apache Kafka with a controller of ours; a test that stops a
    node restarts it.
    """
    directory = tmp_path_factory.mktemp("replicated") / "run"
    with our_cluster(
        directory,
        port=mixed_port(1),
        controllers=1,
        brokers=2,
        settings=SETTINGS,
        release=request.param.ours,
    ) as ours:
        voters = ours.spec.node("broker-1").properties["controller.quorum.voters"]
        settings = {
            **SETTINGS,
            "process.roles": "broker",
            "node.id": str(THEIRS),
            "controller.quorum.voters": voters,
        }
        with apache(request.param.theirs, settings, level=request.param.level) as theirs:
            yield Mixed(ours, theirs)
            ours.require_running()
            assert not logged_errors(theirs, but=WHILE_BROKERS_DIE)


def test_brokers_of_both_kinds_replicate_from_each_other_byte_for_byte(mixed: Mixed) -> None:
    """Six partitions, with leaders on all three: every record is acknowledged by all replicas, and
    the segments have the same bytes.
    """
    workload = mixed.create("copied")
    workload.write(RECORDS)
    workload.flush()
    workload.check()
    assert {row[1] for row in metadata_of(mixed.theirs.bootstrap, "copied")[-1]} == REPLICAS
    mixed.wait_for_equal_logs("copied")
    log = mixed.ours.directory.data("broker-1") / "copied-0/00000000000000000000.log"
    assert "isvalid: true" in dump_log(log, release=mixed.theirs.release)


@pytest.mark.parametrize("name", ["broker-1", "theirs"])
def test_a_killed_leader_is_replaced_and_catches_up_after_its_restart(
    mixed: Mixed, name: str
) -> None:
    """No acknowledged record is lost, none is duplicated; a restarted broker rejoins the ISR with
    the same bytes.
    """
    topic = f"killed-{name}"
    workload = mixed.create(topic)
    workload.write(RECORDS)
    gone = THEIRS if name == "theirs" else FIRST
    if name == "theirs":
        mixed.theirs.stop(cleanly=False)
    else:
        mixed.ours.kill(name)
    killed = time.monotonic()
    workload.write(RECORDS)
    workload.flush()
    print(f"{name} killed: every record acknowledged after {time.monotonic() - killed:.2f} s")
    mixed.wait_for(topic, REPLICAS - {gone})
    if name == "theirs":
        mixed.theirs.start()
    else:
        mixed.ours.restart(name)
    mixed.wait_for(topic, REPLICAS)
    mixed.elect(topic)
    workload.write(RECORDS)
    workload.flush()
    workload.check()
    mixed.wait_for_equal_logs(topic)
