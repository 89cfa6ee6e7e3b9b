"""Apache Kafka's own tools, unchanged, with a quorum of ours whose voters change: what they print,
and what they read from its files.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kraftsim.cluster.processes import ProcessCluster
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path, shell_class_path
from tests.apache_kafka.harness import dump_log, metadata_shell, run_tool
from tests.apache_kafka.mixed import (
    METADATA_LOG,
    controllers_of,
    metadata_records,
    mixed_port,
    new_leader,
    our_cluster,
    wait_until,
)
from tests.cluster.broker_client import broker_client
from tests.cluster.running import address_of
from tests.node.controllers import CLUSTER_ID

pytestmark = pytest.mark.interop
VOTERS, JOINER, BROKER = (101, 102), 103, 1
SNAPSHOTS_OFTEN = {"metadata.log.max.snapshot.interval.ms": "2000"}
BLOCK = 1000
TOPIC = "made-by-a-tool"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Two voters, a controller that can become one, a broker; skips without Java or Maven."""
    class_path()
    directory = tmp_path_factory.mktemp("tools") / "run"
    with our_cluster(
        directory,
        port=mixed_port(),
        controllers=3,
        brokers=1,
        first_voters=2,
        settings=SNAPSHOTS_OFTEN,
    ) as running:
        yield running
        running.require_running()


@pytest.fixture
def connections(cluster: ProcessCluster) -> dict[str, tuple[str, str]]:
    """How a tool connects: through a broker, or to the controllers."""
    return {
        "server": ("--bootstrap-server", cluster.bootstrap),
        "controller": ("--bootstrap-controller", ",".join(controllers_of(cluster))),
    }


def table(printed: str) -> dict[int, dict[str, str]]:
    """Return the rows of `describe --replication` by node id."""
    head, *rows = [line.split() for line in printed.splitlines() if line.strip()]
    return {int(row[0]): dict(zip(head, row, strict=True)) for row in rows}


def directory_id(cluster: ProcessCluster, node: str) -> str:
    """Return the directory id of a node, from its meta.properties."""
    lines = (cluster.directory.data(node) / "meta.properties").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))


@pytest.mark.parametrize("connection", ["server", "controller"])
def test_kafka_metadata_quorum_describes_the_quorum(
    cluster: ProcessCluster, connections: dict[str, tuple[str, str]], connection: str
) -> None:
    """kafka-metadata-quorum describe, through a broker (which forwards it) and on the controllers
    (KIP-853).
    """
    leader = new_leader(controllers_of(cluster), among=VOTERS)
    described = dict(
        line.split(":", 1)
        for line in run_tool(
            DEFAULT_RELEASE, "metadata-quorum", *connections[connection], "describe", "--status"
        ).splitlines()
        if line
    )
    assert (described["ClusterId"].strip(), int(described["LeaderId"])) == (CLUSTER_ID, leader)
    voters = {voter["id"]: voter for voter in json.loads(described["CurrentVoters"])}
    assert {node_id: voter["directoryId"] for node_id, voter in voters.items()} == {
        node_id: directory_id(cluster, f"controller-{node_id}") for node_id in VOTERS
    }
    assert voters[leader]["endpoints"] == [
        f"CONTROLLER://{address_of(cluster, f'controller-{leader}')}"
    ]
    assert {observer["id"] for observer in json.loads(described["CurrentObservers"])} == {
        BROKER,
        JOINER,
    }
    rows = table(
        run_tool(
            DEFAULT_RELEASE,
            "metadata-quorum",
            *connections[connection],
            "describe",
            "--replication",
        )
    )
    assert {node_id: row["Status"] for node_id, row in rows.items()} == {
        **dict.fromkeys(VOTERS, "Follower"),
        leader: "Leader",
        BROKER: "Observer",
        JOINER: "Observer",
    }


def test_kafka_metadata_quorum_adds_and_removes_a_controller(
    cluster: ProcessCluster, connections: dict[str, tuple[str, str]]
) -> None:
    """kafka-metadata-quorum add-controller reads the property files of our controller;
    remove-controller takes both ids (KIP-853).
    """
    name = f"controller-{JOINER}"

    def status() -> str:
        return table(
            run_tool(
                DEFAULT_RELEASE,
                "metadata-quorum",
                *connections["controller"],
                "describe",
                "--replication",
            )
        )[JOINER]["Status"]

    file, own_id = str(cluster.directory.properties(name)), directory_id(cluster, name)
    added = run_tool(
        DEFAULT_RELEASE,
        "metadata-quorum",
        *connections["controller"],
        "--command-config",
        file,
        "add-controller",
    )
    assert f"Added controller {JOINER} with directory id {own_id}" in added
    assert status() == "Follower"
    which = ["--controller-id", str(JOINER), "--controller-directory-id", own_id]
    assert f"controller {JOINER} with directory id {own_id}" in run_tool(
        DEFAULT_RELEASE, "metadata-quorum", *connections["server"], "remove-controller", *which
    )
    assert status() == "Observer"


@pytest.mark.parametrize("connection", ["server", "controller"])
def test_kafka_cluster_and_kafka_features_work(
    connections: dict[str, tuple[str, str]], connection: str
) -> None:
    """kafka-cluster and kafka-features, through a broker and on the controllers (KIP-919)."""
    assert CLUSTER_ID in run_tool(
        DEFAULT_RELEASE, "cluster", "cluster-id", *connections[connection]
    )
    features = run_tool(DEFAULT_RELEASE, "features", *connections[connection], "describe")
    assert (
        "metadata.version\tSupportedMinVersion: 3.0-IV1\tSupportedMaxVersion: "
        "3.9-IV0\tFinalizedVersionLevel: 3.9-IV0"
    ) in features
    assert (
        "kraft.version\tSupportedMinVersion: 0\tSupportedMaxVersion: 1\tFinalizedVersionLevel: 1"
        in features
    )


def test_kafka_topics_creates_describes_and_deletes_topics(
    cluster: ProcessCluster, connections: dict[str, tuple[str, str]]
) -> None:
    """kafka-topics; kafka-broker-api-versions prints the broker and its API versions."""
    server = connections["server"]
    run_tool(
        DEFAULT_RELEASE,
        "topics",
        *server,
        "--create",
        "--topic",
        TOPIC,
        "--partitions",
        "3",
        "--config",
        "retention.ms=86400000",
    )
    described = run_tool(DEFAULT_RELEASE, "topics", *server, "--describe", "--topic", TOPIC)
    assert (
        "PartitionCount: 3" in described
        and "retention.ms=86400000" in described
        and described.count("Leader: 1") == 3
    )
    run_tool(DEFAULT_RELEASE, "topics", *server, "--create", "--topic", "gone", "--partitions", "1")
    run_tool(DEFAULT_RELEASE, "topics", *server, "--delete", "--topic", "gone")
    assert run_tool(DEFAULT_RELEASE, "topics", *server, "--list").split() == [TOPIC]
    offered = run_tool(DEFAULT_RELEASE, "broker-api-versions", *server)
    assert (
        f"{cluster.bootstrap} (id: {BROKER} rack: null)" in offered
        and "InitProducerId(22): 0 to 5 [usable: 5]" in offered
    )


def snapshot_with(cluster: ProcessCluster, words: bytes, copies: Path) -> Path:
    """Wait until a controller has written a snapshot that contains some bytes, and return a copy:
    the controller deletes it when it has written the next ones.
    """
    directory = (cluster.directory.data(f"controller-{VOTERS[0]}") / METADATA_LOG).parent
    found: list[Path] = []

    def is_there() -> bool:
        for file in sorted(directory.glob("*.checkpoint")):
            with suppress(FileNotFoundError):
                content = file.read_bytes()
                if words in content:
                    found.append(copies / file.name)
                    found[-1].write_bytes(content)
        return bool(found)

    wait_until(is_there, f"a snapshot with {words!r} in {directory}")
    return found[-1]


def test_kafka_tools_read_the_metadata_log_and_snapshot(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    """kafka-dump-log with its metadata decoder reads both and finds every batch valid;
    kafka-metadata-shell opens the snapshot (KIP-630).
    """
    shell_class_path()
    topic = "in-a-snapshot"
    with broker_client(cluster.bootstrap) as broker:
        producer_id = broker.fresh_producer_id()
        broker.create_topic(topic, 2)
    snapshot = snapshot_with(cluster, topic.encode(), tmp_path)
    log = cluster.directory.data(f"controller-{VOTERS[0]}") / METADATA_LOG
    dumped = dump_log(log, snapshot, metadata=True)
    assert "isvalid: false" not in dumped and "Could not" not in dumped
    expected = (
        "controlType: LEADER_CHANGE(2)",
        "KRaftVersion",
        "KRaftVoters",
        "SnapshotHeader",
        "SnapshotFooter",
    )
    assert [kind for kind in expected if kind not in dumped] == []
    kinds = {record["type"] for record in metadata_records(log, release=DEFAULT_RELEASE)}
    assert {
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "REGISTER_CONTROLLER_RECORD",
        "TOPIC_RECORD",
        "PRODUCER_IDS_RECORD",
    } <= kinds
    in_image = {
        *(f"/image/topics/byName/{topic}/{partition}" for partition in (0, 1)),
        f"/image/cluster/brokers/{BROKER}",
        *(f"/image/cluster/controllers/{node_id}" for node_id in (*VOTERS, JOINER)),
        f"{(producer_id // BLOCK + 1) * BLOCK}",
    }
    seen = metadata_shell(
        snapshot, "find /image", "cat /image/producerIds/nextProducerId", wanted=in_image
    )
    assert not in_image - seen
