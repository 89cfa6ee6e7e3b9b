"""A combined node (process.roles=broker,controller) of kraftsim and of Apache Kafka: the same
server.properties and the same directories, and Apache Kafka's own tools.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.readiness import ClusterFailed
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec
from kraftsim.conformance.peer import Peer
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k55_describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE, class_path
from tests.apache_kafka.harness import ApacheKafka, dump_log, run_tool
from tests.apache_kafka.mixed import METADATA_LOG_ASKED
from tests.cluster.broker_client import BrokerClient, batch_of, broker_client
from tests.cluster.running import QUICK_SESSIONS, running_processes

pytestmark = pytest.mark.interop
TOPIC = "in-both"
SECONDS = 30.0


@contextmanager
def ours_on(kafka: ApacheKafka) -> Iterator[None]:
    """`kraftsim node` with the server.properties of a stopped Apache Kafka."""
    line = ".".join(kafka.release.split(".")[:2])
    command = [
        "node",
        str(kafka.directory / "server.properties"),
        "--set",
        f"kraftsim.release={line}",
    ]
    log = kafka.directory / "ours.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kraftsim", *command], stdout=output, stderr=output
        )
    try:
        give_up_at = time.monotonic() + SECONDS
        while b"event=serving" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise ClusterFailed(log.read_text())
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        assert process.wait(SECONDS) == 0, log.read_text()


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_apache_kafka_and_kraftsim_take_turns_on_one_combined_directory(release: str) -> None:
    """Each reads the records, the metadata and the quorum state that the other wrote."""
    class_path(release)
    with ApacheKafka(release=release) as kafka:
        with broker_client(kafka.bootstrap) as broker:
            broker.create_topic(TOPIC)
            broker.produce(TOPIC, batch_of([b"theirs"]))
        kafka.stop()
        with ours_on(kafka), broker_client(kafka.bootstrap) as broker:
            assert broker.values(TOPIC) == [b"theirs"]
            broker.produce(TOPIC, batch_of([b"ours"]))
            broker.create_topic("made-by-kraftsim")
            described = json.dumps(kafka.tool("topics", "--list").split())
            assert "made-by-kraftsim" in described
        kafka.start()
        with broker_client(kafka.bootstrap) as broker:
            assert broker.values(TOPIC) == [b"theirs", b"ours"]
            broker.produce("made-by-kraftsim", batch_of([b"theirs again"]))
            assert broker.values("made-by-kraftsim") == [b"theirs again"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """One combined node of kraftsim; skips without Java or Maven."""
    class_path()
    with running_processes(
        tmp_path_factory.mktemp("combined"), controllers=1, combined=1
    ) as cluster:
        yield cluster


def test_kafka_metadata_quorum_shows_a_combined_node_as_the_only_replica(
    node: ProcessCluster,
) -> None:
    """kafka-metadata-quorum describe, through either listener: a leader and no observer."""
    controller = f"127.0.0.1:{node.spec.node('broker-1').controller_port}"
    for option, address in (
        ("--bootstrap-server", node.bootstrap),
        ("--bootstrap-controller", controller),
    ):
        status = run_tool(
            DEFAULT_RELEASE, "metadata-quorum", option, address, "describe", "--status"
        )
        lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        assert lines["LeaderId"].strip() == "1"
        assert lines["CurrentObservers"].strip() == "[]"
        rows = run_tool(
            DEFAULT_RELEASE, "metadata-quorum", option, address, "describe", "--replication"
        ).splitlines()
        assert [row.split()[-1] for row in rows[1:] if row.strip()] == ["Leader"]


def test_kafkas_tools_read_the_files_of_a_combined_node(
    node: ProcessCluster, tmp_path: Path
) -> None:
    """kafka-storage info, and kafka-dump-log with the records of both registrations."""
    data = node.directory.data("broker-1")
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        f"controller.quorum.voters=1@localhost:9093\nlog.dirs={data}\n"
    )
    about = run_tool(DEFAULT_RELEASE, "storage", "info", "--config", str(properties))
    assert "node.id=1" in about and "not formatted" not in about
    records = dump_log(data / "__cluster_metadata-0" / "00000000000000000000.log", metadata=True)
    for record in ("REGISTER_BROKER_RECORD", "REGISTER_CONTROLLER_RECORD"):
        assert record in records


def test_combined_nodes_of_both_kinds_form_one_quorum(tmp_path: Path) -> None:
    """Two of kraftsim and one of Apache Kafka: each votes, hosts replicas, and may lead; when the
    active controller dies, the others elect leaders.
    """
    class_path()
    port = free_port_range(3, controllers=3)
    first = port + CONTROLLER_PORT_DISTANCE
    voters = ",".join(f"{number}@127.0.0.1:{first + number - 1}" for number in (1, 2, 3))
    common = {**QUICK_SESSIONS, "controller.quorum.voters": voters, "num.partitions": "1"}
    spec = ClusterSpec(brokers=2, controllers=2, combined=2, port=port, settings=common)
    theirs = ApacheKafka(
        settings={**common, "node.id": "3"}, port=port + 2, controller_port=first + 2
    )
    ours = ProcessCluster(spec, RunDirectory(tmp_path))
    addresses = [f"127.0.0.1:{port + number}" for number in range(3)]
    try:
        theirs.launch()
        asyncio.run(ours.start(timeout_seconds=90))
        theirs.wait()
        leader = leader_of(addresses, among=(1, 2, 3))
        with broker_client(addresses[0]) as broker:
            create_everywhere(broker)
        writes_to_its_leader(addresses, b"before")
        if leader == 3:
            theirs.stop(cleanly=False)
        else:
            ours.kill(f"broker-{leader}")
        left = [address for number, address in enumerate(addresses, 1) if number != leader]
        others = tuple(number for number in (1, 2, 3) if number != leader)
        assert leader_of(left, among=others) in others
        writes_to_its_leader(left, b"after")
    finally:
        asyncio.run(ours.stop())
        theirs.remove()


def leader_of(addresses: Sequence[str], *, among: Sequence[int]) -> int:
    """The id of the active controller, as soon as it is one of these."""
    give_up_at = time.monotonic() + SECONDS
    while True:
        for address in addresses:
            with suppress(OSError, AssertionError), Peer.at(address) as peer:
                request = DescribeQuorumRequest(topics=[METADATA_LOG_ASKED])
                answer = peer.ask(request, 1, DescribeQuorumResponse).topics[0].partitions[0]
                if not answer.error_code and answer.leader_id in among:
                    return answer.leader_id
        assert time.monotonic() < give_up_at, "a controller is active"
        time.sleep(0.1)


def create_everywhere(broker: BrokerClient) -> None:
    """Create the topic with a replica on each of the three nodes, once they are all known."""
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=3)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    give_up_at = time.monotonic() + SECONDS
    while broker.peer.ask(request, 5, CreateTopicsResponse).topics[0].error_code not in (
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ):
        assert time.monotonic() < give_up_at, "three brokers are alive"
        time.sleep(0.1)


def writes_to_its_leader(addresses: Sequence[str], value: bytes) -> None:
    """Write a record with acks=all to whichever node leads the partition now, and read it there.

    Each node is tried once at a time: one that follows now may follow for ever.
    """
    give_up_at = time.monotonic() + SECONDS
    while True:
        for address in addresses:
            with suppress(OSError, AssertionError), broker_client(address) as broker:
                written = broker.produce(TOPIC, batch_of([value]), seconds=0.0)
                if written.error_code == ErrorCode.NONE:
                    assert value in broker.values(TOPIC)
                    return
        assert time.monotonic() < give_up_at, "a node leads the partition"
        time.sleep(0.1)
