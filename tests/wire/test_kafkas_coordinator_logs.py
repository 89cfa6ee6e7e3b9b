"""Records of the coordinators of a real Apache Kafka are read and rebuilt byte for byte:
transactions, groups of three protocols, share state.
"""

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from protocol.coordinator.consumer_groups import GroupMetadataValue
from protocol.coordinator.registry import (
    CoordinatorTopic,
    build_record,
    parse_record,
    value_version,
)
from protocol.coordinator.transactions import TransactionLogKey, TransactionLogValue
from protocol.records.batches import split_batches
from protocol.schema import Message
from protocol.version_prefixed import (
    build_assignment,
    build_subscription,
    parse_assignment,
    parse_subscription,
    prefixed_version,
)
from tests.apache_kafka.harness import QUICK_JVM, TOOLS_OF_4, ApacheKafka, java_command

pytestmark = pytest.mark.interop
SECONDS = 30.0


@pytest.fixture(scope="module", params=["apache_kafka", "apache_kafka_newest"])
def kafka(request: pytest.FixtureRequest) -> ApacheKafka:
    """3.9.1 and the newest release, after a transaction, one or two groups, and share consumers if
    supported.
    """
    node: ApacheKafka = request.getfixturevalue(request.param)
    topic, marker = f"input-{uuid.uuid4().hex[:6]}", uuid.uuid4().hex[:6]
    node.tool("topics", "--create", "--topic", topic, "--partitions", "2")
    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "transactional.id": f"transfer-{marker}"}
    )
    producer.init_transactions(SECONDS)
    for commits in (
        True,
        False,
        True,
    ):  # the third one is delayed until the markers of the second are written
        producer.begin_transaction()
        producer.produce(topic, value=b"value")
        consumer = _joined(node, topic, {"group.id": f"classic-{marker}"})
        offsets = [TopicPartition(topic, 0, 1, metadata="größer")]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
        producer.commit_transaction(SECONDS) if commits else producer.abort_transaction(SECONDS)
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
    if node.release.startswith("4."):
        consumer = _joined(
            node, topic, {"group.id": f"consumer-{marker}", "group.protocol": "consumer"}
        )
        consumer.commit(offsets=[TopicPartition(topic, 1, 0)], asynchronous=False)
        consumer.close()
        _consume_shared(node, topic, f"share-{marker}")
    return node


def _joined(node: ApacheKafka, topic: str, settings: dict[str, str]) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "enable.auto.commit": "false", **settings}
    )
    consumer.subscribe([topic])
    for _ in range(int(SECONDS * 10)):
        consumer.poll(0.1)
        if consumer.assignment():
            return consumer
    raise AssertionError(f"no assignment after {SECONDS} s")


def _consume_shared(node: ApacheKafka, topic: str, group: str) -> None:
    """Let Kafka's own tool consume in a share group, which starts at the end of the topic: so
    produce until it has records.
    """
    main_class = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    arguments = [
        "--bootstrap-server",
        node.bootstrap,
        "--topic",
        topic,
        "--group",
        group,
        "--max-messages",
        "2",
    ]
    reader = subprocess.Popen(
        java_command(TOOLS_OF_4, main_class, *arguments, jvm=QUICK_JVM),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    producer = Producer({"bootstrap.servers": node.bootstrap})
    try:
        for _ in range(int(SECONDS * 5)):
            producer.produce(topic, value=b"shared")
            producer.flush(SECONDS)
            if reader.poll() is not None:
                break
            _wait(reader)
    finally:
        reader.kill()
        _, words = reader.communicate()
    assert reader.returncode == 0, (
        f"the share consumer did not get two records:\n{words.decode()[-2000:]}"
    )


def _wait(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(0.2)
    except subprocess.TimeoutExpired:
        return


def _records(node: ApacheKafka, topic: CoordinatorTopic) -> Iterator[tuple[bytes, bytes | None]]:
    for file in sorted(node.data.glob(f"{topic.value}-*/*.log")):
        for batch in split_batches(Path(file).read_bytes()):
            for record in () if batch.is_control else batch.records():
                assert record.key is not None
                yield bytes(record.key), None if record.value is None else bytes(record.value)


def _parsed(
    node: ApacheKafka, topic: CoordinatorTopic
) -> list[tuple[int, Message, Message | None]]:
    """Return type, key and value of all records, each of them built again."""
    found = []
    for key, value in _records(node, topic):
        record = parse_record(topic, key, value)
        assert record is not None, f"{topic.value} has a record of unknown type: {key.hex()}"
        assert build_record(*record, 0 if value is None else value_version(value)) == (key, value)
        found.append((prefixed_version(key), *record))
    return found


def test_transactions_are_read_and_built_byte_for_byte(kafka: ApacheKafka) -> None:
    found = _parsed(kafka, CoordinatorTopic.TRANSACTION_STATE)
    assert {type(key) for _, key, _ in found} == {TransactionLogKey}
    states = [
        value.transaction_status for _, _, value in found if isinstance(value, TransactionLogValue)
    ]
    assert {0, 1, 2, 3, 4, 5} <= set(states), (
        "empty, ongoing, prepare and complete of a commit and an abort"
    )


def test_groups_are_read_and_built_byte_for_byte(kafka: ApacheKafka) -> None:
    found = _parsed(kafka, CoordinatorTopic.CONSUMER_OFFSETS)
    types = {record_type for record_type, _, _ in found}
    assert {1, 2} <= types
    if kafka.release.startswith("4."):
        assert {3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15} <= types, (
            "the records of a consumer group and a share group"
        )
        tombstones = {record_type for record_type, _, value in found if value is None}
        assert 5 in tombstones, "a member that left"


def test_classic_member_metadata_and_assignments_round_trip(kafka: ApacheKafka) -> None:
    """Only groups of this test: other clients of the node may have used arbitrary metadata."""
    found = _parsed(kafka, CoordinatorTopic.CONSUMER_OFFSETS)
    groups = [
        value
        for _, key, value in found
        if isinstance(value, GroupMetadataValue)
        and getattr(key, "group", "").startswith("classic-")
    ]
    members = [member for group in groups for member in group.members]
    assert members
    for member in members:
        subscription, assignment = (
            parse_subscription(member.subscription),
            parse_assignment(member.assignment),
        )
        assert subscription.topics and assignment.assigned_partitions
        assert (
            build_subscription(subscription, prefixed_version(member.subscription))
            == member.subscription
        )
        assert (
            build_assignment(assignment, prefixed_version(member.assignment)) == member.assignment
        )


def test_share_state_is_read_and_built_byte_for_byte(kafka: ApacheKafka) -> None:
    """Snapshots and updates; 3.9 has no such topic."""
    types = {
        record_type for record_type, _, _ in _parsed(kafka, CoordinatorTopic.SHARE_GROUP_STATE)
    }
    assert types == ({0, 1} if kafka.release.startswith("4.") else set())
