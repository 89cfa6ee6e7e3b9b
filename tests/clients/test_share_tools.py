"""Share consumers of Apache Kafka's command-line tools, and that of librdkafka, on our brokers.

Source: KIP-932; org.apache.kafka.tools.{consumer.ConsoleShareConsumer, VerifiableShareConsumer,
ShareConsumerPerformance}.
"""

import json
from collections import defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.share_group_client import alter_group
from kraftsim.conformance.target import Target
from tests.apache_kafka.harness import run_java
from tests.cluster.broker_client import broker_client

pytestmark = pytest.mark.interop
RELEASES = {"4.2": "4.2.2", "4.3": "4.3.1", "4.4": "4.4.0"}
SETTINGS = {
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
VERIFIABLE = "org.apache.kafka.tools.VerifiableShareConsumer"
PERFORMANCE = "org.apache.kafka.tools.ShareConsumerPerformance"
RECORDS = 20
MAX_POLLS = 60
VALUES = [f"v{number}" for number in range(RECORDS)]


class Node:
    """A node that emulates a release, with the tools of that release."""

    def __init__(self, line: str, bootstrap: str) -> None:
        self.line = line
        self.bootstrap = bootstrap

    def run(self, main_class: str, *words: str) -> list[str]:
        """Return the lines that a tool prints."""
        done = run_java(
            RELEASES[self.line], main_class, "--bootstrap-server", self.bootstrap, *words
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if line]

    def filled(self, topic: str) -> tuple[str, str]:
        """Return a topic with records, and a group that begins at its start."""
        with broker_client(self.bootstrap) as broker:
            broker.create_topic(topic)
            broker.wait_for_leaders(topic, 1)
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in VALUES:
            producer.produce(topic, value)
        assert producer.flush(30) == 0
        group_id = f"{topic}-group"
        configs = {"share.auto.offset.reset": "earliest"}
        assert alter_group(Target(self.bootstrap), group_id, configs) == (0, "")
        return topic, group_id


@pytest.fixture(scope="module", params=RELEASES)
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    spec = ClusterSpec(brokers=1, release=request.param, port=free_port_range(1), settings=SETTINGS)
    with EmbeddedCluster(spec) as running:
        yield Node(request.param, running.bootstrap)


def test_the_console_share_consumer_releases_and_accepts(node: Node, topic: str) -> None:
    """Released records are delivered once more, with a higher count."""
    name, group_id = node.filled(topic)
    shown = ("--formatter-property", "print.delivery=true", "--max-messages", str(RECORDS))
    words = ("--topic", name, "--group", group_id, "--timeout-ms", "20000", *shown)
    assert node.run(CONSOLE, *words, "--release") == [f"Delivery:1\t{each}" for each in VALUES]
    assert node.run(CONSOLE, *words) == [f"Delivery:2\t{each}" for each in VALUES]


def test_the_verifiable_share_consumer_acknowledges_what_it_consumed(
    node: Node, topic: str
) -> None:
    name, group_id = node.filled(topic)
    lines = node.run(
        VERIFIABLE,
        *("--topic", name, "--group-id", group_id, "--max-messages", str(RECORDS)),
        *("--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest"),
    )
    events = [json.loads(line) for line in lines]
    counts: dict[str, int] = defaultdict(int)
    for event in events:
        counts[event["name"]] += event.get("count", 0)
    assert counts["records_consumed"] == counts["offsets_acknowledged"] == RECORDS, events
    offsets = [
        offset
        for event in events
        if event["name"] == "offsets_acknowledged"
        for part in event["partitions"]
        for offset in part["offsets"]
    ]
    assert sorted(offsets) == list(range(RECORDS))
    assert counts.keys() >= {"startup_complete", "shutdown_complete"}


def test_the_performance_tool_consumes_every_record(node: Node, topic: str) -> None:
    name, group_id = node.filled(topic)
    lines = node.run(
        PERFORMANCE,
        *("--topic", name, "--group", group_id, "--num-records", str(RECORDS)),
        *("--timeout", "20000", "--hide-header"),
    )
    assert not any("WARNING" in line for line in lines), lines
    assert [word.strip() for word in lines[-1].split(",")][5] == str(RECORDS)


def test_librdkafka_accepts_releases_and_rejects(node: Node, topic: str) -> None:
    """Its share consumer, too, counts deliveries."""
    name, group_id = node.filled(topic)
    consumer = ShareConsumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group_id,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([name])
    kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
    deliveries: dict[int, list[int]] = defaultdict(list)

    def acknowledge(messages: list[Message]) -> None:
        for message in messages:
            assert message.error() is None
            offset, count = message.offset(), message.delivery_count()
            assert offset is not None and count is not None
            deliveries[offset].append(count)
            consumer.acknowledge(message, kinds[offset % 3] if count == 1 else kinds[0])
        if messages:
            assert set(consumer.commit_sync(30.0).values()) == {None}

    expected = {
        offset: [1, 2] if kinds[offset % 3] is AcknowledgeType.RELEASE else [1]
        for offset in range(RECORDS)
    }
    for _ in range(MAX_POLLS):
        if deliveries == expected:
            break
        acknowledge(list(consumer.poll(0.5)))
    acknowledge(list(consumer.poll(0.5)))
    consumer.close()
    assert deliveries == expected
