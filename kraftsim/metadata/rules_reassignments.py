"""Partition reassignments: start, cancel, list.

A reassignment completes by itself: the leader sends AlterPartition with the new replicas in the
ISR, and this change completes it.
Source: KIP-455, ReplicationControlManager.{alterPartitionReassignments,
listPartitionReassignments}.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from kraftsim.core.decision import Decision, Refusal, Steps, ends_step, whole
from kraftsim.metadata.rules_partition_changes import (
    Election,
    PartitionTarget,
    partition_events,
    reassignment_to,
    reverted,
)
from kraftsim.metadata.rules_partitions import RECORDS_PER_OPERATION_MAX, ReplicationView
from kraftsim.metadata.rules_registrations import PartitionRegistration
from kraftsim.metadata.rules_topic_table import PartitionKey, Topic
from kraftsim.metadata.rules_topics import refuse_assignment
from protocol.errors import ErrorCode
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from protocol.messages.k46_list_partition_reassignments import ListPartitionReassignmentsTopics
from protocol.metadata.topics import PartitionChangeRecord
from protocol.schema import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedPartition:
    """The result of starting or cancelling the reassignment of one partition."""

    partition: int
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedTopic:
    """The partitions of one topic, in the order of the request."""

    topic: str
    partitions: tuple[MovedPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingMoves:
    """The partitions of one topic that are being reassigned, by number."""

    topic: str
    partitions: tuple[tuple[int, PartitionRegistration], ...]


def decide_reassignments(
    view: ReplicationView, request: AlterPartitionReassignmentsRequest
) -> Decision[list[MovedTopic]]:
    """Start or cancel reassignments, each partition by itself, in one batch.

    If no new replica has to catch up, it completes at once.
    """
    return whole(reassignment_steps(view, request))


def reassignment_steps(
    view: ReplicationView, request: AlterPartitionReassignmentsRequest
) -> Steps[Decision[list[MovedTopic]]]:
    """Like `decide_reassignments`, in steps."""
    results: list[MovedTopic] = []
    records: list[Message] = []
    looked_at = count()
    for row in request.topics:
        topic = view.topics.topic_named(row.name)
        partitions = []
        for asked in row.partitions:
            if ends_step(next(looked_at)):
                yield
            outcome = _decide_partition(
                view, row.name, topic, asked, changes_factor=request.allow_replication_factor_change
            )
            if (
                isinstance(outcome, PartitionChangeRecord)
                and len(records) == RECORDS_PER_OPERATION_MAX
            ):
                outcome = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
            if isinstance(outcome, PartitionChangeRecord):
                records.append(outcome)
            partitions.append(
                MovedPartition(
                    partition=asked.partition_index,
                    refusal=outcome if isinstance(outcome, Refusal) else None,
                )
            )
        results.append(MovedTopic(topic=row.name, partitions=tuple(partitions)))
    return Decision(records, results, partition_events(records, view.topics))


def ongoing_moves(
    view: ReplicationView, asked: Iterable[ListPartitionReassignmentsTopics] | None
) -> list[OngoingMoves]:
    """Return the ongoing reassignments of some partitions or (None) of all; unknown ones are
    skipped.
    """
    if asked is None:
        numbers: dict[bytes, list[int]] = {}
        for topic_id, number in view.topics.reassigning():
            numbers.setdefault(topic_id, []).append(number)
        named = [(view.topics.topic(topic_id), wanted) for topic_id, wanted in numbers.items()]
    else:
        named = [(view.topics.topic_named(row.name), row.partition_indexes) for row in asked]
    moves = [_moves_of(topic, wanted) for topic, wanted in named if topic is not None]
    return [each for each in moves if each.partitions]


def _moves_of(topic: Topic, numbers: Iterable[int]) -> OngoingMoves:
    known = [(number, topic.partitions.get(number)) for number in numbers]
    return OngoingMoves(
        topic=topic.name,
        partitions=tuple(
            (number, partition)
            for number, partition in known
            if partition is not None and partition.is_reassigning
        ),
    )


def _decide_partition(
    view: ReplicationView,
    name: str,
    topic: Topic | None,
    asked: ReassignablePartition,
    *,
    changes_factor: bool,
) -> PartitionChangeRecord | Refusal | None:
    if topic is None:
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
        )
    partition = topic.partitions.get(asked.partition_index)
    if partition is None:
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {name}:{asked.partition_index}.",
        )
    key = (topic.topic_id, asked.partition_index)
    if asked.replicas is None:
        return _called_off(view, topic, key, partition)
    refusal = refuse_assignment(asked.replicas, view.cluster)
    if refusal is not None:
        return refusal
    present = len(
        [replica for replica in partition.replicas if replica not in partition.removing_replicas]
    )
    if not changes_factor and len(asked.replicas) != present:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {present} to {len(asked.replicas)}",
        )
    move = reassignment_to(asked.replicas, partition.replicas)
    target = PartitionTarget(
        replicas=move.replicas,
        removing_replicas=move.removing or None,
        adding_replicas=move.adding or None,
    )
    return view.change(key, partition, target, Election.ONLINE)


def _called_off(
    view: ReplicationView, topic: Topic, key: PartitionKey, partition: PartitionRegistration
) -> PartitionChangeRecord | Refusal | None:
    if not partition.is_reassigning:
        return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    back = reverted(partition)
    election = view.election_of(topic.name)
    if back.is_unclean and election is not Election.UNCLEAN:
        why = (
            f"Unable to revert partition assignment for {topic.name}:{key[1]} because it would "
            "require an unclean leader election."
        )
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    target = PartitionTarget(
        isr=back.isr, replicas=back.replicas, removing_replicas=(), adding_replicas=()
    )
    return view.change(key, partition, target, election)
