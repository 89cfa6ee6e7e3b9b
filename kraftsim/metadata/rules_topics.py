"""CreateTopics, CreatePartitions and DeleteTopics.

The error messages are Kafka's, because clients show them. Every topic succeeds or fails by itself;
all records of a request are one batch.
Source: KIP-4, KIP-195, KIP-464, KIP-516, ReplicationControlManager, ControllerApis.deleteTopics.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Decision, Refusal, Steps, ends_step, whole
from kraftsim.events.event import Event
from kraftsim.metadata.events import TopicCreated
from kraftsim.metadata.rules_brokers import ClusterControl
from kraftsim.metadata.rules_configs import EffectiveConfig, clear_elr_records
from kraftsim.metadata.rules_partition_changes import partition_events
from kraftsim.metadata.rules_partitions import RECORDS_PER_OPERATION_MAX, TOO_LARGE, ReplicationView
from kraftsim.metadata.rules_registrations import PartitionRegistration, partition_record
from kraftsim.metadata.rules_topic_names import METADATA_TOPIC, why_name_is_invalid
from kraftsim.metadata.rules_topic_table import Placement, RandomSource, Topic, place_replicas
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import BROKER_DEFAULT, CreatableTopic, CreateTopicsRequest
from protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.metadata.topics import RECOVERED, PartitionRecord, RemoveTopicRecord, TopicRecord
from protocol.schema import Message
from protocol.uuids import ZERO_UUID, uuid_text

# --------------------------------------------------------------------------------------------------
# CreateTopics

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


# --------------------------------------------------------------------------------------------------
# CreatePartitions: adds partitions to topics, existing ones are unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedTopic:
    """The result for one topic; without an error it has the requested partition count."""

    name: str
    refusal: Refusal | None = None


def decide_create_partitions(
    view: ReplicationView, request: CreatePartitionsRequest, rng: RandomSource
) -> Decision[list[ExpandedTopic]]:
    """Add partitions, one result per topic: duplicate names first, then the others in the order of
    the request.

    With validate_only no records are returned. A topic that exceeds the record limit fails as a
    whole; Apache Kafka returns the same error, but creates the partitions below the limit.
    """
    return whole(create_partitions_steps(view, request, rng))


def create_partitions_steps(
    view: ReplicationView, request: CreatePartitionsRequest, rng: RandomSource
) -> Steps[Decision[list[ExpandedTopic]]]:
    """Like `decide_create_partitions`, in steps."""
    counts = Counter(topic.name for topic in request.topics)
    twice = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results = [
        ExpandedTopic(name=name, refusal=twice) for name, count in counts.items() if count > 1
    ]
    records: list[Message] = []
    for index, topic in enumerate(request.topics):
        if ends_step(index):
            yield
        if counts[topic.name] > 1:
            continue
        made = _decide_new_partitions(view, topic, rng, RECORDS_PER_OPERATION_MAX - len(records))
        if isinstance(made, Refusal):
            results.append(ExpandedTopic(name=topic.name, refusal=made))
        else:
            results.append(ExpandedTopic(name=topic.name))
            records += made
    return (
        Decision([], results)
        if request.validate_only
        else Decision(records, results, partition_events(records, view.topics))
    )


def _decide_new_partitions(
    view: ReplicationView, asked: CreatePartitionsTopic, rng: RandomSource, records_max: int
) -> list[Message] | Refusal:
    topic = view.topics.topic_named(asked.name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present_count = len(topic.partitions)
    if asked.count == present_count:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {present_count} partition(s)."
        )
    if asked.count < present_count:
        why = (
            f"The topic {asked.name} currently has {present_count} partition(s); {asked.count} "
            "would not be an increase."
        )
        return Refusal(ErrorCode.INVALID_PARTITIONS, why)
    additional_count = asked.count - present_count
    if asked.assignments is not None and len(asked.assignments) != additional_count:
        why = (
            f"Attempted to add {additional_count} additional partition(s), but only "
            f"{len(asked.assignments)} assignment(s) were specified."
        )
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    if additional_count > records_max:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    placement = _placement(view, topic, asked.assignments, additional_count, rng)
    if isinstance(placement, Refusal):
        return placement
    return list(partition_records(view, topic.topic_id, placement, first_partition=present_count))


def _placement(
    view: ReplicationView,
    topic: Topic,
    assignments: Sequence[CreatePartitionsAssignment] | None,
    additional_count: int,
    rng: RandomSource,
) -> Placement | Refusal:
    """Return the replicas of the new partitions, each with as many as partition 0 has."""
    replication_factor = len(topic.partitions[0].replicas)
    if assignments is None:
        placement = place_replicas(
            additional_count, replication_factor, view.cluster.usable_brokers(), rng
        )
        return (
            placement
            if isinstance(placement, Refusal)
            else refuse_unled(view, placement) or placement
        )
    by_hand: list[tuple[int, ...]] = []
    for partition_id, assignment in enumerate(assignments, start=len(topic.partitions)):
        refusal = refuse_assignment(assignment.broker_ids, view.cluster, replication_factor)
        if refusal is None and not view.active_of(assignment.broker_ids):
            refusal = refuse_inactive(partition_id)
        if refusal is not None:
            return refusal
        by_hand.append(tuple(assignment.broker_ids))
    return by_hand


# --------------------------------------------------------------------------------------------------
# The records of new partitions

FIRST_EPOCH = 0


def refuse_unled(view: ReplicationView, placement: Placement) -> Refusal | None:
    """Return the error of a placement without an active replica: brokers in controlled shutdown
    under a former controller count as usable.
    """
    if all(view.active_of(replicas) for replicas in placement):
        return None
    why = (
        f"Unable to replicate the partition {len(placement[0])} time(s): All brokers are "
        "currently fenced or in controlled shutdown."
    )
    return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, why)


def partition_records(
    view: ReplicationView, topic_id: bytes, placement: Placement, first_partition: int = 0
) -> Iterator[PartitionRecord]:
    """Yield the records of partitions from a number on: the leader is the first active replica, the
    ISR are all active replicas.
    """
    level = view.level
    for partition_id, replicas in enumerate(placement, start=first_partition):
        isr = view.active_of(replicas)
        partition = PartitionRegistration(
            replicas=replicas,
            directories=tuple(view.default_directory(replica) for replica in replicas),
            isr=isr,
            removing_replicas=(),
            adding_replicas=(),
            leader=isr[0],
            leader_recovery_state=RECOVERED,
            leader_epoch=FIRST_EPOCH,
            partition_epoch=FIRST_EPOCH,
        )
        yield partition_record(topic_id, partition_id, partition, level)


# --------------------------------------------------------------------------------------------------
# Manual replica assignments
#
# Source: ReplicationControlManager.validateManualPartitionAssignment.


def refuse_assignment(
    replicas: Sequence[int], cluster: ClusterControl, expected_count: int | None = None
) -> Refusal | None:
    """Return the error of a replica list. Fails with INVALID_REPLICA_ASSIGNMENT.

    expected_count: the replication factor of the topic's other partitions, if it matters.
    """
    if not replicas:
        return _refused("The manual partition assignment includes an empty replica list.")
    ordered = sorted(replicas)
    for index, replica in enumerate(ordered):
        broker = cluster.broker(replica)
        if broker is None:
            return _refused(
                f"The manual partition assignment includes broker {replica}, but no such broker "
                "is registered."
            )
        if not broker.takes_partitions:
            return _refused(
                f"The manual partition assignment includes broker {replica}, but all its log "
                "directories are cordoned."
            )
        if index and replica == ordered[index - 1]:
            return _refused(
                f"The manual partition assignment includes the broker {replica} more than once."
            )
    if expected_count is not None and len(replicas) != expected_count:
        return _refused(
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{expected_count} replica(s)."
        )
    return None


def refuse_inactive(partition_id: int) -> Refusal:
    """Return the error of a partition without an active replica."""
    return _refused(
        f"All brokers specified in the manual partition assignment for partition {partition_id} "
        "are fenced or in controlled shutdown."
    )


def _refused(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


# --------------------------------------------------------------------------------------------------
# DeleteTopics: by name or id
#
# A topic that occurs more than once, by name or id, is not deleted, as the request is ambiguous.


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToDelete:
    """One topic of a request: a name, or null and an id."""

    name: str | None
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    """The result for one topic.

    `name` is null and `topic_id` zero if neither requested nor found.
    """

    name: str | None
    topic_id: bytes
    refusal: Refusal | None = None


def decide_delete_topics(
    view: ReplicationView, asked: Sequence[TopicToDelete]
) -> Decision[list[DeletedTopic]] | Refusal:
    """Delete topics; one result per requested topic.

    Fails as a whole with POLICY_VIOLATION if the request is too large.
    """
    results: list[DeletedTopic] = []
    names, ids = _sorted_out(asked, results)
    found: dict[bytes, str] = {}
    for topic_id in (topic_id for topic_id, count in ids.items() if count == 1):
        topic = view.topics.topic(topic_id)
        if topic is None:
            unknown = Refusal(
                ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
            )
            results.append(DeletedTopic(name=None, topic_id=topic_id, refusal=unknown))
        else:
            found[topic_id] = topic.name
    for name in names:
        named_id = view.topics.topic_id(name)
        if named_id is None:
            unknown = Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
            results.append(DeletedTopic(name=name, topic_id=ZERO_UUID, refusal=unknown))
        elif named_id in ids:
            found.pop(named_id, None)
            supplied = Refusal(
                ErrorCode.INVALID_REQUEST,
                "The provided topic name maps to an ID that was already supplied.",
            )
            results.append(DeletedTopic(name=name, topic_id=named_id, refusal=supplied))
        else:
            found[named_id] = name
    if len(found) > RECORDS_PER_OPERATION_MAX:
        return Refusal(ErrorCode.POLICY_VIOLATION, TOO_LARGE)
    records: list[Message] = [RemoveTopicRecord(topic_id=topic_id) for topic_id in found]
    results += [DeletedTopic(name=name, topic_id=topic_id) for topic_id, name in found.items()]
    return Decision(records, results, partition_events(records, view.topics))


def _sorted_out(
    asked: Sequence[TopicToDelete], results: list[DeletedTopic]
) -> tuple[list[str], Counter[bytes]]:
    """Return the names requested once, and the count of each id; add results for invalid
    entries.
    """
    for topic in asked:
        if topic.name is None and topic.topic_id == ZERO_UUID:
            nothing = Refusal(
                ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."
            )
            results.append(DeletedTopic(name=None, topic_id=ZERO_UUID, refusal=nothing))
        elif topic.name is not None and topic.topic_id != ZERO_UUID:
            both = Refusal(
                ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
            )
            results.append(DeletedTopic(name=topic.name, topic_id=topic.topic_id, refusal=both))
    names = Counter(
        topic.name for topic in asked if topic.name is not None and topic.topic_id == ZERO_UUID
    )
    ids = Counter(
        topic.topic_id for topic in asked if topic.name is None and topic.topic_id != ZERO_UUID
    )
    twice_by_id = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    twice_by_name = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results += [
        DeletedTopic(name=name, topic_id=ZERO_UUID, refusal=twice_by_name)
        for name, count in names.items()
        if count > 1
    ]
    results += [
        DeletedTopic(name=None, topic_id=topic_id, refusal=twice_by_id)
        for topic_id, count in ids.items()
        if count > 1
    ]
    return [name for name, count in names.items() if count == 1], ids
