"""Requests to a controller by znodes: reassignments, elections, deletions; and notifications from
brokers.

Reassignments and elections are protocol requests since 2.4; the znodes still work in 3.9.
Source: kafka.zk.{ReassignPartitionsZNode, PreferredReplicaElectionZNode, DeleteTopicsTopicZNode,
IsrChangeNotificationSequenceZNode, LogDirEventNotificationSequenceZNode}.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from protocol.malformed import MalformedMessage
from protocol.message_json import Json
from protocol.zookeeper.kafka_znodes import DELETE_TOPICS, LOG_DIRECTORY_EVENTS
from protocol.zookeeper.znode_json import (
    integer_of,
    integers_of,
    json_text,
    nullable_text_of,
    parse_object,
)

LOG_DIRECTORY_EVENT: Final = f"{LOG_DIRECTORY_EVENTS}/log_dir_event_"
FAILED: Final = 1
TopicPartition = tuple[str, int]


def delete_topic_path(topic: str) -> str:
    """Return the path that requests the deletion of a topic."""
    return f"{DELETE_TOPICS}/{topic}"


def build_reassignments(moves: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """Return the text that requests reassignments of some partitions."""
    rows: list[Json] = [
        {"topic": topic, "partition": partition, "replicas": list(replicas)}
        for (topic, partition), replicas in moves.items()
    ]
    return json_text({"version": 1, "partitions": rows})


def parse_reassignments(data: bytes) -> dict[TopicPartition, list[int]]:
    """Decode the requested replicas. Raises MalformedMessage."""
    return {_partition(row): integers_of(row.get("replicas"), "replicas") for row in _rows(data)}


def build_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the text that requests preferred leader elections, or notifies of changed ISRs."""
    rows: list[Json] = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return json_text({"version": 1, "partitions": rows})


def parse_partitions(data: bytes) -> list[TopicPartition]:
    """Decode the partitions. Raises MalformedMessage."""
    return [_partition(row) for row in _rows(data)]


def build_log_directory_event(broker_id: int) -> bytes:
    """Return the text with which a broker reports a failed log directory."""
    return json_text({"version": 1, "broker": broker_id, "event": FAILED})


def parse_log_directory_event(data: bytes) -> int:
    """Decode the broker id. Raises MalformedMessage."""
    return integer_of(parse_object(data, LOG_DIRECTORY_EVENTS), "broker")


def _rows(data: bytes) -> list[dict[str, Json]]:
    rows = parse_object(data, "partitions").get("partitions")
    if not isinstance(rows, list):
        raise MalformedMessage(None, None, "partitions", f"{rows!r} is no list")
    return [row for row in rows if isinstance(row, dict)]


def _partition(row: Mapping[str, Json]) -> TopicPartition:
    topic = nullable_text_of(row, "topic")
    if topic is None:
        raise MalformedMessage(None, None, "topic", "none is named")
    return topic, integer_of(row, "partition")
