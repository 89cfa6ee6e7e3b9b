"""Combined nodes (process.roles=broker,controller): one node, and a quorum of three of them, as
Apache Kafka 3.9.1 and 4.4.0 answer in that mode.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec, SpecError
from kraftsim.conformance.peer import Peer
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
)
from protocol.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.cluster.broker_client import batch_of, broker_client
from tests.cluster.running import QUICK_SESSIONS, running_processes

BROKERS, CONTROLLERS = 1, 2
"""Endpoint types of DescribeCluster (KIP-919)."""
SECONDS = 20.0


@pytest.fixture
def one_node(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """One combined node."""
    with combined(1, tmp_path) as cluster:
        yield cluster


def combined(count: int, directory: Path) -> EmbeddedCluster:
    """A cluster of combined nodes only, not started."""
    spec = ClusterSpec(
        brokers=count,
        controllers=count,
        combined=count,
        port=free_port_range(count, controllers=count),
        settings=QUICK_SESSIONS,
    )
    return EmbeddedCluster(spec, RunDirectory(directory))


def controller_of(cluster: EmbeddedCluster, number: int = 0) -> str:
    return f"127.0.0.1:{cluster.spec.port + CONTROLLER_PORT_DISTANCE + number}"


def quorum(address: str) -> DescribeQuorumPartitionResult:
    """The answer of a node to DescribeQuorum."""
    asked = DescribeQuorumTopic(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumPartition(partition_index=0)]
    )
    with Peer.at(address) as peer:
        answer = peer.ask(DescribeQuorumRequest(topics=[asked]), 1, DescribeQuorumResponse)
    return answer.topics[0].partitions[0]


def offered(address: str) -> set[int]:
    """The API keys that a listener offers."""
    with Peer.at(address) as peer:
        return {
            row.api_key for row in peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys
        }


def nodes_of(address: str, endpoint_type: int) -> tuple[int, list[tuple[int, int]]]:
    """The error, and (id, port) of each node in the answer to DescribeCluster."""
    with Peer.at(address) as peer:
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        answer = peer.ask(request, 1, DescribeClusterResponse)
    return answer.error_code, [(each.broker_id, each.port) for each in answer.brokers]


def events_of(cluster: EmbeddedCluster, name: str) -> list[dict[str, object]]:
    """The events of all incarnations of a node."""
    files = sorted(cluster.directory.events.glob(f"{name}.*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_combined_node_is_the_only_replica_of_its_metadata_log(one_node: EmbeddedCluster) -> None:
    """The broker is no observer: it applies the log of the controller."""
    for address in (one_node.bootstrap, controller_of(one_node)):
        found = quorum(address)
        assert (found.leader_id, [voter.replica_id for voter in found.current_voters]) == (1, [1])
        assert found.observers == []
    directory = one_node.directory.data("broker-1")
    assert [path.parent.name for path in directory.glob("*/quorum-state")] == [
        "__cluster_metadata-0"
    ]
    assert "node.id=1\n" in (directory / "meta.properties").read_text()


def test_each_listener_serves_the_requests_of_its_role(one_node: EmbeddedCluster) -> None:
    broker, controller = offered(one_node.bootstrap), offered(controller_of(one_node))
    assert {ApiKey.PRODUCE, ApiKey.METADATA} <= broker
    assert not {ApiKey.VOTE, ApiKey.BROKER_REGISTRATION} & broker
    assert {ApiKey.VOTE, ApiKey.BROKER_REGISTRATION} <= controller
    assert not {ApiKey.PRODUCE, ApiKey.METADATA} & controller


def test_each_listener_describes_the_endpoints_of_its_role(one_node: EmbeddedCluster) -> None:
    """The registration of the broker has no controller listener (KIP-919 asks for one kind)."""
    port, other = one_node.spec.port, one_node.spec.port + CONTROLLER_PORT_DISTANCE
    mismatched: tuple[int, list[tuple[int, int]]] = (ErrorCode.MISMATCHED_ENDPOINT_TYPE, [])
    assert nodes_of(one_node.bootstrap, BROKERS) == (0, [(1, port)])
    assert nodes_of(controller_of(one_node), CONTROLLERS) == (0, [(1, other)])
    assert nodes_of(one_node.bootstrap, CONTROLLERS) == mismatched
    assert nodes_of(controller_of(one_node), BROKERS) == mismatched


def test_the_event_log_has_one_node_and_numbers_its_connections_once(tmp_path: Path) -> None:
    with combined(1, tmp_path) as cluster, broker_client(cluster.bootstrap) as broker:
        broker.create_topic("t")
    events = events_of(cluster, "broker-1")
    assert [path.name for path in cluster.directory.events.iterdir()] == ["broker-1.1.jsonl"]
    for kind in ("NodeStarted", "NodeReady", "NodeStopped"):
        assert [event["kind"] for event in events].count(kind) == 1
    assert (events[0]["kind"], events[0]["role"]) == ("NodeStarted", "broker,controller")
    assert events[-1]["kind"] == "NodeStopped"
    opened = [event["connection"] for event in events if event["kind"] == "ConnectionOpened"]
    assert len(opened) == len(set(opened)) > 3


def test_a_killed_combined_node_recovers_both_roles(one_node: EmbeddedCluster) -> None:
    with broker_client(one_node.bootstrap) as broker:
        broker.create_topic("t")
        broker.produce("t", batch_of([b"one"]))
        first_id = broker.fresh_producer_id()
    one_node.kill("broker-1")
    one_node.restart("broker-1")
    one_node.wait_until_ready()
    with broker_client(one_node.bootstrap) as broker:
        assert broker.values("t") == [b"one"]
        assert broker.fresh_producer_id() > first_id
        broker.create_topic("another")
    assert quorum(one_node.bootstrap).leader_epoch > 1


def test_a_snapshot_of_the_controller_is_applied_by_its_broker(tmp_path: Path) -> None:
    """After a restart the log may begin behind the topic's record."""
    often = {"metadata.log.max.record.bytes.between.snapshots": "500", **QUICK_SESSIONS}
    small = {"metadata.log.segment.bytes": "2000", "metadata.max.retention.bytes": "1"}
    port = free_port_range(1)
    spec = ClusterSpec(brokers=1, controllers=1, combined=1, port=port, settings={**often, **small})
    with EmbeddedCluster(spec, RunDirectory(tmp_path)) as cluster:
        with broker_client(cluster.bootstrap) as broker:
            for number in range(20):
                broker.create_topic(f"t-{number}")
        log = cluster.directory.data("broker-1") / "__cluster_metadata-0"
        give_up_at = time.monotonic() + SECONDS
        while not any(not path.name.startswith("0" * 20) for path in log.glob("*.checkpoint")):
            assert time.monotonic() < give_up_at, "a snapshot is written"
            time.sleep(0.02)
        cluster.kill("broker-1")
        cluster.restart("broker-1")
        cluster.wait_until_ready()
        with broker_client(cluster.bootstrap) as broker:
            broker.produce("t-0", batch_of([b"after"]))
            assert broker.values("t-0") == [b"after"]


@pytest.mark.interop
def test_three_combined_nodes_elect_leaders_when_the_active_controller_dies(
    tmp_path: Path,
) -> None:
    with combined(3, tmp_path) as cluster:
        found = quorum(cluster.bootstrap.partition(",")[0])
        assert sorted(voter.replica_id for voter in found.current_voters) == [1, 2, 3]
        assert found.observers == []
        dead = f"broker-{found.leader_id}"
        cluster.kill(dead)
        others = [name for name in cluster.spec.broker_names if name != dead]
        address = f"127.0.0.1:{cluster.spec.node(others[0]).port}"
        give_up_at = time.monotonic() + SECONDS
        while (now := quorum(address)).error_code or now.leader_id == found.leader_id:
            assert time.monotonic() < give_up_at, "another controller becomes active"
            time.sleep(0.05)
        with broker_client(address) as broker:
            broker.create_topic("t")
        cluster.restart(dead)
        cluster.wait_until_ready()
        assert nodes_of(address, BROKERS)[0] == 0


def test_a_failure_of_one_role_ends_the_process(tmp_path: Path) -> None:
    """A node that lost its controller must not stay a broker (kafka.server.SharedServer)."""
    with running_processes(tmp_path, controllers=1, combined=1) as cluster:
        log = cluster.directory.data("broker-1") / "__cluster_metadata-0"
        (log / "quorum-state").unlink()
        (log / "quorum-state").mkdir()
        (log / "quorum-state" / "full").touch()
        cluster.kill("broker-1")
        cluster.restart("broker-1")
        process = cluster.nodes["broker-1"].process
        assert process.wait(SECONDS) == 3
        cluster.nodes.clear()
    lines = cluster.directory.human_log("broker-1").read_text().strip().splitlines()
    assert lines[-1].startswith("Error: ") and "quorum-state" in lines[-1]


def test_a_mixed_cluster_has_combined_nodes_brokers_and_controllers() -> None:
    spec = ClusterSpec(controllers=3, brokers=2, combined=1, port=9092)
    assert spec.node_names == ("broker-1", "controller-102", "controller-103", "broker-2")
    voters = spec.node("broker-2").properties["controller.quorum.voters"]
    assert voters == "1@127.0.0.1:9192,102@127.0.0.1:9193,103@127.0.0.1:9194"
    assert spec.node("broker-1").properties["listeners"] == (
        "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9192"
    )
    with pytest.raises(SpecError, match="2 nodes cannot be brokers and controllers at once"):
        ClusterSpec(controllers=1, brokers=3, combined=2)
