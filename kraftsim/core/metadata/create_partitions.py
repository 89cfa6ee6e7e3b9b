"""CreatePartitions: adds partitions to topics, existing ones are unchanged.
Source: KIP-195, ReplicationControlManager.createPartitions.

The error messages are Kafka's, because clients show them. Every topic succeeds or fails by itself;
all records are one batch.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kraftsim.core.decision import Decision, Refusal, Steps, ends_step, whole
from kraftsim.core.metadata.new_partitions import partition_records, refuse_unled
from kraftsim.core.metadata.partition_events import partition_events
from kraftsim.core.metadata.replica_assignment import refuse_assignment, refuse_inactive
from kraftsim.core.metadata.replica_placement import Placement, RandomSource, place_replicas
from kraftsim.core.metadata.replication_view import RECORDS_PER_OPERATION_MAX, ReplicationView
from kraftsim.core.metadata.topic_table import Topic
from protocol.errors import ErrorCode
from protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.schema import Message


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
