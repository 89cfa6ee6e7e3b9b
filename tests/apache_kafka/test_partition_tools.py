"""Apache Kafka's own tools for topics, leaders and reassignments against our cluster."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path
from tests.apache_kafka.harness import run_java
from tests.cluster.broker_client import batch_of, broker_client

pytestmark = pytest.mark.interop
TOPICS = "org.apache.kafka.tools.TopicCommand"
SECONDS = 30.0
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
CONFIGS = "kafka.admin.ConfigCommand"


class Tool:
    """Runs a tool, by its class, checks its exit code, and returns its output."""

    def __init__(self, broker: str) -> None:
        self.broker = broker

    def __call__(self, main_class: str, *arguments: str, fails: bool = False) -> str:
        done = run_java(DEFAULT_RELEASE, main_class, "--bootstrap-server", self.broker, *arguments)
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def tool() -> Iterator[Tool]:
    """Runs tools against a cluster of two brokers."""
    class_path(DEFAULT_RELEASE)
    with EmbeddedCluster(
        ClusterSpec(
            brokers=2, port=free_port_range(2), settings={"replica.fetch.backoff.ms": "100"}
        )
    ) as cluster:
        yield Tool(cluster.bootstrap.partition(",")[0])


def test_a_topic_is_created_widened_and_deleted(tool: Tool) -> None:
    """kafka-topics: create, alter, describe, delete, and create again under the same name."""
    for _ in range(2):
        tool(TOPICS, "--create", "--topic", "grown", "--partitions", "2")
        assert "Topic 'grown' already exists." in tool(
            TOPICS, "--create", "--topic", "grown", fails=True
        )
        tool(TOPICS, "--alter", "--topic", "grown", "--partitions", "5")
        said = tool(TOPICS, "--alter", "--topic", "grown", "--partitions", "3", fails=True)
        assert "The topic grown currently has 5 partition(s); 3 would not be an increase." in said
        assert tool(TOPICS, "--describe", "--topic", "grown").count("Partition: ") == 5
        tool(TOPICS, "--delete", "--topic", "grown")
        assert "grown" not in tool(TOPICS, "--list")
    assert "Topic 'Optional[grown]' does not exist as expected" in tool(
        TOPICS, "--delete", "--topic", "grown", fails=True
    )


def test_kafka_leader_election_elects_leaders(tool: Tool) -> None:
    """kafka-leader-election: an election of the current preferred leader is reported as not needed;
    missing partitions are reported.
    """
    tool(TOPICS, "--create", "--topic", "led", "--partitions", "1")
    one = ("--topic", "led", "--partition", "0")
    for kind in ("preferred", "unclean"):
        assert "Valid replica already elected for partitions led-0" in tool(
            ELECTION, "--election-type", kind, *one
        )
    tool(ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    said = tool(
        ELECTION,
        "--election-type",
        "preferred",
        "--topic",
        "missing",
        "--partition",
        "0",
        fails=True,
    )
    assert "UnknownTopicOrPartitionException" in said


def test_a_reassignment_is_started_and_completed(tool: Tool, tmp_path: Path) -> None:
    """kafka-reassign-partitions: the new replica catches up, and the old one is removed; a
    completed reassignment cannot be cancelled.
    """
    tool(TOPICS, "--create", "--topic", "moved", "--replica-assignment", "1")
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [2]}]}
        )
    )
    file = ("--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignment for moved-0" in tool(
        REASSIGN, "--execute", *file
    )
    give_up_at = time.monotonic() + SECONDS
    while "No partition reassignments found." not in tool(REASSIGN, "--list"):
        assert time.monotonic() < give_up_at, "the reassignment is not completed"
    assert "Reassignment of partition moved-0 is completed." in tool(REASSIGN, "--verify", *file)
    assert "Leader: 2\tReplicas: 2\tIsr: 2" in tool(TOPICS, "--describe", "--topic", "moved")


def test_a_reassignment_is_throttled_and_unthrottled(tool: Tool, tmp_path: Path) -> None:
    """kafka-reassign-partitions --throttle: replication is limited until the throttle is changed;
    --verify removes the throttles (KIP-73).
    """
    tool(TOPICS, "--create", "--topic", "slow", "--replica-assignment", "1")
    with broker_client(tool.broker) as first:
        first.wait_for_leaders("slow", 1)
        for _ in range(30):
            assert first.produce("slow", batch_of([bytes(100_000)]), acks=1).error_code == 0
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {"version": 1, "partitions": [{"topic": "slow", "partition": 0, "replicas": [1, 2]}]}
        )
    )
    file = ("--reassignment-json-file", str(plan))
    assert "The inter-broker throttle limit was set to 10000 B/s" in tool(
        REASSIGN, "--execute", *file, "--throttle", "10000"
    )
    limits = {
        broker: tool(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", broker)
        for broker in ("1", "2")
    }
    for said in limits.values():
        assert (
            "leader.replication.throttled.rate=10000 " in said
            and "follower.replication.throttled.rate=10000 " in said
        ), said
    assert "Reassignment of partition slow-0 is still in progress." in tool(
        REASSIGN, "--verify", *file
    )
    tool(REASSIGN, "--execute", "--additional", *file, "--throttle", "1000000000")
    give_up_at = time.monotonic() + SECONDS
    while "No partition reassignments found." not in tool(REASSIGN, "--list"):
        assert time.monotonic() < give_up_at, "the reassignment is not completed"
    said = tool(REASSIGN, "--verify", *file)
    assert (
        "Clearing broker-level throttles on brokers 1,2" in said
        and "Clearing topic-level throttles on topic slow" in said
    )
    assert "throttled" not in tool(
        CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "2"
    )
    assert "throttled" not in tool(
        CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "slow"
    )
