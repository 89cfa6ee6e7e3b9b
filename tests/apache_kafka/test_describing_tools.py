"""Apache Kafka's own tools that describe a cluster, against ours: topics, configurations, log
directories, offsets, producers, quotas.
"""

import json
from collections.abc import Callable, Iterator

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.batches import batch, filled_topic, produce
from kraftsim.conformance.target import Target
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path
from tests.apache_kafka.harness import run_java

pytestmark = pytest.mark.interop
CONFIGS = "kafka.admin.ConfigCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
TOPICS = "org.apache.kafka.tools.TopicCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
PRODUCER_ID = 77
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Tool, Target]]:
    """Run a tool, by its class, against one broker, and return its output."""
    class_path(DEFAULT_RELEASE)
    with EmbeddedCluster(ClusterSpec(brokers=1, port=free_port_range(1))) as running:
        broker = running.bootstrap

        def run(main_class: str, *arguments: str) -> str:
            done = run_java(DEFAULT_RELEASE, main_class, "--bootstrap-server", broker, *arguments)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        yield run, Target(broker)


def test_kafka_topics_describes_topics(cluster: tuple[Tool, Target]) -> None:
    """kafka-topics reads page by page (DescribeTopicPartitions)."""
    tool, target = cluster
    name = target.topic(partitions=5).name
    said = tool(TOPICS, "--describe", "--topic", name, "--partition-size-limit-per-response", "2")
    assert f"Topic: {name}" in said and "PartitionCount: 5" in said
    assert said.count("Leader: 1") == 5 and said.count("Isr: 1") == 5


def test_kafka_configs_shows_configs_with_their_source(cluster: tuple[Tool, Target]) -> None:
    """kafka-configs: the overrides and all configs of a topic and of a broker."""
    tool, target = cluster
    name = target.topic(configs={"retention.ms": "4321"}).name
    own = tool(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", name)
    assert "retention.ms=4321" in own and "segment.bytes" not in own
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in tool(
        CONFIGS, "--describe", "--all", "--entity-type", "topics", "--entity-name", name
    )
    tool(
        CONFIGS,
        "--alter",
        "--entity-type",
        "brokers",
        "--entity-name",
        "1",
        "--add-config",
        "message.max.bytes=5000000",
    )
    shown = tool(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "1")
    assert (
        "message.max.bytes=5000000" in shown and "DEFAULT_CONFIG:message.max.bytes=1048588" in shown
    )
    assert "node.id=1" in tool(
        CONFIGS, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1"
    )


def test_kafka_configs_sets_and_describes_quotas(cluster: tuple[Tool, Target]) -> None:
    """kafka-configs: of a client."""
    tool, _ = cluster
    entity = ("--entity-type", "clients", "--entity-name", "somebody")
    tool(CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=1000")
    assert "producer_byte_rate=1000.0" in tool(CONFIGS, "--describe", *entity)


def test_kafka_log_dirs_describes_log_directories(cluster: tuple[Tool, Target]) -> None:
    """kafka-log-dirs: the size of what was produced, in JSON."""
    tool, target = cluster
    topic = filled_topic(target, batches=3)
    said = tool(LOG_DIRS, "--describe", "--broker-list", "1", "--topic-list", topic.name)
    described = json.loads(said.splitlines()[-1])
    directory = described["brokers"][0]["logDirs"][0]
    assert directory["error"] is None
    assert [
        (row["partition"], row["offsetLag"], row["isFuture"]) for row in directory["partitions"]
    ] == [(f"{topic.name}-0", 0, False)]
    assert directory["partitions"][0]["size"] > 3 * 70


def test_kafka_get_offsets_prints_offsets(cluster: tuple[Tool, Target]) -> None:
    """kafka-get-offsets: the latest and earliest offset, and that of the maximum timestamp."""
    tool, target = cluster
    topic = filled_topic(target, batches=4)
    for time, offsets in (("latest", "4"), ("earliest", "0"), ("max-timestamp", "0123")):
        name, partition, offset = (
            tool(OFFSETS, "--topic", topic.name, "--time", time).strip().split(":")
        )
        assert (name, partition) == (topic.name, "0") and offset in offsets, (time, offset)


def test_kafka_transactions_describes_producers(cluster: tuple[Tool, Target]) -> None:
    """kafka-transactions describe-producers: id, epoch, last sequence."""
    tool, target = cluster
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        produce(
            peer, topic.name, batch(3, producer_id=PRODUCER_ID, producer_epoch=2, base_sequence=0)
        )
    said = tool(TRANSACTIONS, "describe-producers", "--topic", topic.name, "--partition", "0")
    row = said.splitlines()[-1].split()
    assert row[:3] == [str(PRODUCER_ID), "2", "-1"] and row[3] == "2", said
