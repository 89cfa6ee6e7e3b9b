"""A quorum of two kraftsim controllers and one of Apache Kafka: it elects either kind, fails over,
and all three logs are identical.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE
from protocol.records.batches import split_batches
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.harness import ApacheKafka, run_tool
from tests.apache_kafka.mixed import (
    METADATA_LOG,
    OF_A_CONTROLLER,
    apache,
    logged_errors,
    mixed_port,
    new_leader,
    our_cluster,
    voters_text,
    wait_until,
)
from tests.cluster.broker_client import broker_client
from tests.cluster.running import address_of

pytestmark = pytest.mark.interop
OURS, THEIRS = (101, 102), 103
OF_PRE_VOTES = ("VoteRequestData", "UnsupportedVersionException")
"""4.x sends a pre-vote, which 3.9 does not support (KIP-996); it then continues without, as in a
cluster of its own kind.
"""
LAST = "under-the-last"
ITS_PATIENCE_MS, OUR_PATIENCE_MS = "1000", "4000"
"""The controller with the shortest timeout starts the first election: Apache Kafka's, while it
runs.
"""
OURS_WAIT = {"controller.quorum.fetch.timeout.ms": OUR_PATIENCE_MS}


@dataclass(frozen=True)
class Mixed:
    """The quorum, and a broker of ours that follows it."""

    ours: ProcessCluster
    theirs: ApacheKafka

    @property
    def controllers(self) -> list[str]:
        """All addresses."""
        return [
            *(address_of(self.ours, f"controller-{node_id}") for node_id in OURS),
            self.theirs.controller,
        ]

    def logs(self) -> dict[int, bytes]:
        """Return the metadata log of each controller."""
        files = {
            node_id: self.ours.directory.data(f"controller-{node_id}") / METADATA_LOG
            for node_id in OURS
        }
        return {
            node_id: log.read_bytes()
            for node_id, log in {**files, THEIRS: self.theirs.data / METADATA_LOG}.items()
        }

    def write(self, topic: str) -> float:
        """Create a topic through our broker; return how long it took."""
        began = time.monotonic()
        with broker_client(address_of(self.ours, "broker-1")) as broker:
            broker.create_topic(topic)
        return time.monotonic() - began


@contextmanager
def mixed_quorum(release: str, directory: Path) -> Iterator[Mixed]:
    """Run the quorum and our broker."""
    port = mixed_port()
    ports = {
        node_id: port + CONTROLLER_PORT_DISTANCE + index
        for index, node_id in enumerate((*OURS, THEIRS))
    }
    voters = {"controller.quorum.voters": voters_text(ports)}
    its = {
        "process.roles": "controller",
        "node.id": str(THEIRS),
        **voters,
        "controller.quorum.fetch.timeout.ms": ITS_PATIENCE_MS,
    }
    settings = {**voters, "controller.quorum.fetch.timeout.ms": OUR_PATIENCE_MS}
    with (
        apache(release, its, controller_port=ports[THEIRS]) as theirs,
        our_cluster(directory, port=port, controllers=2, brokers=1, settings=settings) as ours,
    ):
        yield Mixed(ours, theirs)
        ours.require_running()
        assert not logged_errors(theirs, but=(*OF_A_CONTROLLER, *OF_PRE_VOTES))


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_nodes_of_either_kind_are_elected_and_logs_are_identical(
    release: str, tmp_path: Path
) -> None:
    """Each of four leaders writes a topic: the first leader, Apache Kafka's, one of ours after its
    kill, and the leader after its restart.
    """
    with mixed_quorum(release, tmp_path / "run") as mixed:
        mixed.write("first")
        while (leader := new_leader(mixed.controllers, among=(*OURS, THEIRS))) != THEIRS:
            mixed.ours.kill(f"controller-{leader}")
            new_leader(mixed.controllers, among={*OURS, THEIRS} - {leader})
            mixed.ours.restart(f"controller-{leader}")
        mixed.write("under-theirs")

        mixed.theirs.stop(cleanly=False)
        killed = time.monotonic()
        leader = new_leader(mixed.controllers, among=OURS)
        elected = time.monotonic() - killed
        mixed.write("under-ours")
        print(
            f"{release}: kill -9 of the Apache controller to an election of ours: {elected:.2f} "
            f"s, to a topic: {time.monotonic() - killed:.2f} s"
        )
        mixed.theirs.start()
        wait_until(
            lambda: len(mixed.logs()[THEIRS]) >= len(mixed.logs()[leader]), "it has what it missed"
        )

        mixed.ours.kill(f"controller-{leader}")
        killed = time.monotonic()
        successor = new_leader(mixed.controllers, among={*OURS, THEIRS} - {leader})
        mixed.write(LAST)
        print(
            f"{release}: kill -9 of our leader to a topic under {successor}: "
            f"{time.monotonic() - killed:.2f} s"
        )
        mixed.ours.restart(f"controller-{leader}")
        with broker_client(address_of(mixed.ours, "broker-1")) as broker:
            known = {
                topic: broker.metadata(topic).topics[0].error_code
                for topic in ("first", "under-theirs", "under-ours", LAST)
            }
        assert set(known.values()) == {0}, known

        wait_until(
            lambda: all(LAST.encode() in log for log in mixed.logs().values()),
            "every log has the last topic",
        )
        logs = mixed.logs()
        shortest = min(map(len, logs.values()))
        assert len({log[:shortest] for log in logs.values()}) == 1, {
            node_id: len(log) for node_id, log in logs.items()
        }
        epochs = {batch.partition_leader_epoch for batch in split_batches(logs[THEIRS])}
        assert len(epochs) >= 3, epochs


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_an_apache_controller_joins_our_quorum_leads_and_is_removed(
    release: str, tmp_path: Path
) -> None:
    """It joins as an observer, is added and removed by Apache Kafka's tool, and is leader in
    between (KIP-853).
    """
    port = mixed_port()
    with our_cluster(
        tmp_path / "run", port=port, controllers=2, brokers=1, first_voters=2, settings=OURS_WAIT
    ) as ours:
        addresses = [address_of(ours, name) for name in ours.spec.controller_names]
        its = {
            "process.roles": "controller",
            "node.id": str(THEIRS),
            "controller.quorum.voters": "",
            "controller.quorum.bootstrap.servers": ",".join(addresses),
            "controller.quorum.fetch.timeout.ms": ITS_PATIENCE_MS,
        }
        with apache(release, its, controller_port=port + CONTROLLER_PORT_DISTANCE + 2) as theirs:
            mixed = Mixed(ours, theirs)
            connection = ("--bootstrap-controller", ",".join(addresses))
            properties = str(theirs.directory / "server.properties")
            added = run_tool(
                DEFAULT_RELEASE,
                "metadata-quorum",
                "--command-config",
                properties,
                *connection,
                "add-controller",
            )
            assert f"Added controller {THEIRS} with directory id {theirs.directory_id}" in added
            leader = new_leader(mixed.controllers, among=OURS)
            ours.kill(f"controller-{leader}")
            assert new_leader(mixed.controllers, among={*OURS, THEIRS} - {leader}) == THEIRS
            mixed.write("under-theirs")
            ours.restart(f"controller-{leader}")
            which = (
                "--controller-id",
                str(THEIRS),
                "--controller-directory-id",
                theirs.directory_id,
            )
            on_the_leader("metadata-quorum", *connection, "remove-controller", *which)
            new_leader(addresses, among=OURS)
            mixed.write("without-theirs")
        mixed.write("after-theirs")


def on_the_leader(*asked: str) -> str:
    """Run a tool, and retry it while its target is not the leader any more: a restarted node may
    have caused an election.
    """
    for _ in range(5):
        try:
            return run_tool(DEFAULT_RELEASE, *asked)
        except AssertionError as refused:
            if "NotLeaderOrFollowerException" not in str(refused):
                raise
            time.sleep(1)
    return run_tool(DEFAULT_RELEASE, *asked)
