"""CreateTopics: validation, and the records of new topics.
Source: KIP-4, KIP-464, ReplicationControlManager.createTopics.

The error messages are Kafka's, because clients show them. Every topic succeeds or fails by itself;
all records are one batch.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Decision, Refusal, Steps, ends_step, whole
from kraftsim.core.metadata.alter_configs import clear_elr_records
from kraftsim.core.metadata.config_control import EffectiveConfig
from kraftsim.core.metadata.new_partitions import partition_records, refuse_unled
from kraftsim.core.metadata.partition_events import partition_events
from kraftsim.core.metadata.replica_assignment import refuse_assignment, refuse_inactive
from kraftsim.core.metadata.replica_placement import Placement, RandomSource, place_replicas
from kraftsim.core.metadata.replication_view import (
    RECORDS_PER_OPERATION_MAX,
    TOO_LARGE,
    ReplicationView,
)
from kraftsim.core.metadata.topic_names import METADATA_TOPIC, why_name_is_invalid
from kraftsim.events.event import Event
from kraftsim.events.metadata import TopicCreated
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import BROKER_DEFAULT, CreatableTopic, CreateTopicsRequest
from protocol.metadata.m02_topic import TopicRecord
from protocol.schema import Message
from protocol.uuids import uuid_text

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""ReplicationControlManager.MAX_PARTITIONS_PER_BATCH: so that a request cannot exhaust a
controller's memory.
"""
TWICE: Final = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
PROHIBITED: Final = Refusal(
    ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
)
TOPIC_ID_BYTES: Final = 16
LAST_RESERVED_ID: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A created topic, or one that would be created (validate only)."""

    name: str
    topic_id: bytes
    partition_count: int
    replication_factor: int
    configs: tuple[EffectiveConfig, ...]
    """The effective configurations of the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTopic:
    """A topic that failed."""

    name: str
    refusal: Refusal


def decide_create_topics(
    view: ReplicationView, request: CreateTopicsRequest, rng: RandomSource
) -> Decision[list[NewTopic | RefusedTopic]] | Refusal:
    """Create the topics of a request, one result per name: in the order of the request, then the
    names that are invalid.

    Fails as a whole with POLICY_VIOLATION if the request is too large. With validate_only no
    records are returned.
    """
    return whole(create_topics_steps(view, request, rng))


def create_topics_steps(
    view: ReplicationView, request: CreateTopicsRequest, rng: RandomSource
) -> Steps[Decision[list[NewTopic | RefusedTopic]] | Refusal]:
    """Like `decide_create_topics`, in steps."""
    counts = Counter(topic.name for topic in request.topics)
    asked = [
        topic
        for topic in request.topics
        if counts[topic.name] == 1 and topic.name != METADATA_TOPIC
    ]
    if sum(_partition_count_asked(view, topic) for topic in asked) > PARTITIONS_PER_REQUEST_MAX:
        return Refusal(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    results: list[NewTopic | RefusedTopic] = []
    records: list[Message] = []
    facts: list[Event] = []
    for index, topic in enumerate(asked):
        if ends_step(index):
            yield
        outcome = _decide_topic(view, topic, rng)
        if isinstance(outcome, Refusal):
            results.append(RefusedTopic(name=topic.name, refusal=outcome))
            continue
        new_topic, topic_records = outcome
        results.append(new_topic)
        records += topic_records
        facts.append(
            TopicCreated(
                topic=topic.name,
                topic_id=uuid_text(new_topic.topic_id),
                partition_count=new_topic.partition_count,
            )
        )
    if len(records) > RECORDS_PER_OPERATION_MAX:
        return Refusal(ErrorCode.POLICY_VIOLATION, TOO_LARGE)
    results += [
        RefusedTopic(name=name, refusal=TWICE) for name, count in counts.items() if count > 1
    ]
    results += (
        [RefusedTopic(name=METADATA_TOPIC, refusal=PROHIBITED)]
        if counts[METADATA_TOPIC] == 1
        else []
    )
    return (
        Decision([], results)
        if request.validate_only
        else Decision(records, results, (*facts, *partition_events(records, view.topics)))
    )


def is_proper_topic_id(drawn: bytes) -> bool:
    """Return whether random bytes are valid as a topic id: not reserved, and text form without
    leading hyphen.

    Source: Uuid.randomUuid.
    """
    return int.from_bytes(drawn) > LAST_RESERVED_ID and not uuid_text(drawn).startswith("-")


def _decide_topic(
    view: ReplicationView, topic: CreatableTopic, rng: RandomSource
) -> tuple[NewTopic, list[Message]] | Refusal:
    refusal = _refuse_name(view, topic.name)
    if refusal is not None:
        return refusal
    config_records = view.configs.decide_topic_configs(topic.name, topic.configs)
    if isinstance(config_records, Refusal):
        return config_records
    placement = (
        _placement_by_hand(view, topic)
        if topic.assignments
        else _placement_by_number(view, topic, rng)
    )
    if isinstance(placement, Refusal):
        return placement
    topic_id = _draw_topic_id(rng)
    new_topic = NewTopic(
        name=topic.name,
        topic_id=topic_id,
        partition_count=len(placement),
        replication_factor=len(placement[0]),
        configs=tuple(
            view.configs.configs_of_new_topic(
                {record.name: record.value for record in config_records if record.value is not None}
            )
        ),
    )
    config_changes: list[Message] = [
        *config_records,
        *(clear_elr_records(config_records) if view.features.has_eligible_leaders else ()),
    ]
    return new_topic, [
        TopicRecord(name=topic.name, topic_id=topic_id),
        *config_changes,
        *partition_records(view, topic_id, placement),
    ]


def _draw_topic_id(rng: RandomSource) -> bytes:
    drawn = rng.randbytes(TOPIC_ID_BYTES)
    while not is_proper_topic_id(drawn):
        drawn = rng.randbytes(TOPIC_ID_BYTES)
    return drawn


def _refuse_name(view: ReplicationView, name: str) -> Refusal | None:
    why = why_name_is_invalid(name)
    if why is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    if view.topics.topic_id(name) is not None:
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    collision = view.topics.colliding_name(name)
    if collision is not None:
        return Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {collision}",
        )
    return None


def _placement_by_number(
    view: ReplicationView, topic: CreatableTopic, rng: RandomSource
) -> Placement | Refusal:
    if topic.replication_factor < BROKER_DEFAULT or topic.replication_factor == 0:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < BROKER_DEFAULT or topic.num_partitions == 0:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    replication_factor = (
        view.defaults.replication_factor
        if topic.replication_factor == BROKER_DEFAULT
        else topic.replication_factor
    )
    placement = place_replicas(
        _partition_count_asked(view, topic), replication_factor, view.cluster.usable_brokers(), rng
    )
    if isinstance(placement, Refusal):
        return Refusal(
            placement.error,
            f"Unable to replicate the partition {replication_factor} time(s): {placement.why}",
        )
    return refuse_unled(view, placement) or placement


def _placement_by_hand(view: ReplicationView, topic: CreatableTopic) -> Placement | Refusal:
    if topic.replication_factor != BROKER_DEFAULT:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        )
    if topic.num_partitions != BROKER_DEFAULT:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    placement: dict[int, tuple[int, ...]] = {}
    for assignment in topic.assignments:
        partition, replicas = assignment.partition_index, assignment.broker_ids
        if partition in placement:
            why = f"Found multiple manual partition assignments for partition {partition}"
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        expected_count = len(next(reversed(placement.values()))) if placement else None
        refusal = refuse_assignment(replicas, view.cluster, expected_count)
        if refusal is not None:
            return refusal
        if not view.active_of(replicas):
            return refuse_inactive(partition)
        placement[partition] = tuple(replicas)
    if sorted(placement) != list(range(len(placement))):
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [placement[partition] for partition in range(len(placement))]


def _partition_count_asked(view: ReplicationView, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return (
        view.defaults.num_partitions
        if topic.num_partitions == BROKER_DEFAULT
        else max(topic.num_partitions, 0)
    )
