"""Replica-to-directory assignments, and the failure of log directories.

Source: KIP-858, ReplicationControlManager.{handleAssignReplicasToDirs, handleDirectoriesOffline}.
"""

from collections.abc import Collection
from dataclasses import dataclass

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.rules_partition_changes import Election, PartitionTarget, partition_events
from kraftsim.metadata.rules_partitions import ReplicationView, is_online, membership_records
from kraftsim.metadata.rules_registrations import BrokerRegistration, PartitionRegistration
from kraftsim.metadata.rules_topic_table import PartitionKey, Topic
from protocol.errors import ErrorCode
from protocol.messages.k73_assign_replicas_to_dirs import AssignedTopic, AssignReplicasToDirsRequest
from protocol.metadata.registrations import BrokerRegistrationChangeRecord
from protocol.schema import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedReplicas:
    """Partitions of one topic in one directory, in the order of the request: (partition, error)."""

    directory: bytes
    topic_id: bytes
    partitions: tuple[tuple[int, ErrorCode], ...]


def decide_assign_replicas(
    view: ReplicationView, request: AssignReplicasToDirsRequest
) -> Decision[list[list[AssignedReplicas]]] | Refusal:
    """Assign replicas of a broker to directories; results by directory, then topic, in the order of
    the request.

    A replica in an unregistered directory is offline: it loses leadership and leaves the ISR.
    Fails as a whole with UNSUPPORTED_VERSION (metadata.version) or STALE_BROKER_EPOCH.
    """
    if not view.level.has_directories:
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = view.cluster.broker(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {request.broker_id} is not at epoch {request.broker_epoch}",
        )
    results: list[list[AssignedReplicas]] = []
    records: list[Message] = []
    lost: dict[PartitionKey, None] = {}
    for directory in request.directories:
        lost_here = {} if is_online(directory.id, broker) else lost
        results.append(
            [
                _assign(view, broker, directory.id, row, records, lost_here)
                for row in directory.topics
            ]
        )
    records += membership_records(view, sorted(lost), leaving=broker.broker_id)
    return Decision(records, results, partition_events(records, view.topics))


def offline_directory_records(
    view: ReplicationView, broker: BrokerRegistration, offline: Collection[bytes]
) -> list[Message]:
    """Return the changes for the replicas in newly offline directories of a broker, and its
    remaining directories.

    Visits all partitions: directory failures are rare.
    """
    failed = [directory for directory in broker.directories if directory in offline]
    if not failed:
        return []
    records: list[Message] = []
    for directory in failed:
        keys = [
            key
            for key, partition in view.topics.partitions()
            if _is_in(partition, broker.broker_id, directory)
        ]
        records += membership_records(view, keys, leaving=broker.broker_id)
    remaining = [directory for directory in broker.directories if directory not in offline]
    return [
        *records,
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, log_dirs=remaining
        ),
    ]


def _assign(
    view: ReplicationView,
    broker: BrokerRegistration,
    directory: bytes,
    row: AssignedTopic,
    records: list[Message],
    lost: dict[PartitionKey, None],
) -> AssignedReplicas:
    """Assign the partitions of one row: add their records, and collect the assigned partitions in
    `lost`.
    """
    topic = view.topics.topic(row.topic_id)
    errors = []
    for asked in row.partitions:
        number = asked.partition_index
        error = _why_unassignable(topic, number, broker.broker_id)
        errors.append((number, error))
        if topic is None or error is not ErrorCode.NONE:
            continue
        key = (topic.topic_id, number)
        target, forgets = (
            PartitionTarget(directories={broker.broker_id: directory}),
            view.behavior.assignments_forget_eligible,
        )
        record = view.change(
            key, topic.partitions[number], target, Election.ONLINE, forgets_eligible=forgets
        )
        if record is not None:
            records.append(record)
        lost[key] = None
    return AssignedReplicas(directory=directory, topic_id=row.topic_id, partitions=tuple(errors))


def _why_unassignable(topic: Topic | None, number: int, broker_id: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(number)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _is_in(partition: PartitionRegistration, broker_id: int, directory: bytes) -> bool:
    return broker_id in partition.replicas and partition.directory_of(broker_id) == directory
