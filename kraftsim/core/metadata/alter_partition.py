"""AlterPartition: a leader requests another ISR; the controller accepts if leader and epochs match.

Source: KIP-497, KIP-704, KIP-841, KIP-903, ReplicationControlManager.{alterPartition,
validateAlterPartitionData}.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.metadata.partition_change import Election, PartitionTarget
from kraftsim.core.metadata.partition_events import partition_events
from kraftsim.core.metadata.partition_registration import PartitionRegistration
from kraftsim.core.metadata.replication_view import ReplicationView
from kraftsim.core.metadata.topic_table import Topic
from protocol.errors import ErrorCode
from protocol.messages.k56_alter_partition import (
    RECOVERED,
    RECOVERING,
    UNCHECKED_BROKER_EPOCH,
    AlterPartitionData,
    AlterPartitionRequest,
    BrokerState,
)
from protocol.metadata.m05_partition_change import NO_LEADER_CHANGE
from protocol.schema import Message

TOPIC_IDS_SINCE: Final = 2
"""The first version with topic ids, INELIGIBLE_REPLICA and NEW_LEADER_ELECTED."""
BROKER_EPOCHS_SINCE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredPartition:
    """The current state of the partition, or the error."""

    partition: int
    state: PartitionRegistration | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredTopic:
    """The partitions of one topic, in the order of the request."""

    topic: str
    topic_id: bytes
    partitions: tuple[AlteredPartition, ...]


def decide_alter_partition(
    view: ReplicationView, request: AlterPartitionRequest, version: int
) -> Decision[list[AlteredTopic]] | Refusal:
    """Change the ISRs that a leader requests, each partition by itself.

    Fails as a whole with STALE_BROKER_EPOCH.

    A change that completes a reassignment may elect another leader: it is applied, and answered
    with NEW_LEADER_ELECTED.
    """
    if not request.topics:
        return Decision([], [])
    if not view.cluster.is_current(request.broker_id, request.broker_epoch):
        return Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {request.broker_id} is not at epoch {request.broker_epoch}",
        )
    by_id = version >= TOPIC_IDS_SINCE
    results: list[AlteredTopic] = []
    election_of = view.elections()
    records: list[Message] = []
    for row in request.topics:
        topic = (
            view.topics.topic(row.topic_id) if by_id else view.topics.topic_named(row.topic_name)
        )
        partitions = []
        for asked in row.partitions:
            if topic is None:
                unknown = Refusal(
                    ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                partitions.append(
                    AlteredPartition(partition=asked.partition_index, refusal=unknown)
                )
            else:
                partitions.append(
                    _decide_partition(
                        view,
                        topic,
                        election_of(topic.name),
                        request.broker_id,
                        asked,
                        version,
                        records,
                    )
                )
        results.append(
            AlteredTopic(topic=row.topic_name, topic_id=row.topic_id, partitions=tuple(partitions))
        )
    return Decision(records, results, partition_events(records, view.topics))


def _decide_partition(
    view: ReplicationView,
    topic: Topic,
    election: Election,
    broker_id: int,
    asked: AlterPartitionData,
    version: int,
    records: list[Message],
) -> AlteredPartition:
    number = asked.partition_index
    partition = topic.partitions.get(number)
    if partition is None:
        return AlteredPartition(
            partition=number, refusal=Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        )
    new_isr = (
        asked.new_isr_with_epochs
        if version >= BROKER_EPOCHS_SINCE
        else [BrokerState(broker_id=replica) for replica in asked.new_isr]
    )
    refusal = (
        _refuse_epochs(partition, broker_id, asked)
        or _refuse_isr(
            partition, [replica.broker_id for replica in new_isr], asked.leader_recovery_state
        )
        or _refuse_ineligible(view, new_isr, version)
    )
    if refusal is not None:
        return AlteredPartition(partition=number, refusal=refusal)
    target = PartitionTarget(
        isr=tuple(replica.broker_id for replica in new_isr),
        leader_recovery_state=asked.leader_recovery_state,
    )
    record = view.change((topic.topic_id, number), partition, target, election)
    if record is not None:
        records.append(record)
        partition = partition.changed_by(record)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            error = (
                ErrorCode.NEW_LEADER_ELECTED
                if version >= TOPIC_IDS_SINCE
                else ErrorCode.FENCED_LEADER_EPOCH
            )
            return AlteredPartition(
                partition=number,
                refusal=Refusal(error, f"the change made {record.leader} the leader"),
            )
    return AlteredPartition(partition=number, state=partition)


def _refuse_epochs(
    partition: PartitionRegistration, broker_id: int, asked: AlterPartitionData
) -> Refusal | None:
    """Return the error of a request with other epochs.

    A request with higher epochs is from a leader of a newer controller: NOT_CONTROLLER.
    """
    if asked.leader_epoch > partition.leader_epoch:
        return Refusal(
            ErrorCode.NOT_CONTROLLER,
            f"the leader epoch is {partition.leader_epoch} here, not {asked.leader_epoch}",
        )
    if asked.partition_epoch > partition.partition_epoch:
        return Refusal(
            ErrorCode.NOT_CONTROLLER,
            f"the partition epoch is {partition.partition_epoch} here, not {asked.partition_epoch}",
        )
    if asked.leader_epoch < partition.leader_epoch:
        return Refusal(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"the leader epoch is {partition.leader_epoch}, not {asked.leader_epoch}",
        )
    if broker_id != partition.leader:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"the leader is {partition.leader}, not {broker_id}"
        )
    if asked.partition_epoch < partition.partition_epoch:
        return Refusal(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the partition epoch is {partition.partition_epoch}, not {asked.partition_epoch}",
        )
    return None


def _refuse_isr(
    partition: PartitionRegistration, new_isr: Sequence[int], recovery_state: int
) -> Refusal | None:
    """Return the error of an invalid ISR: unknown or duplicate members, without the leader, or with
    followers while the leader recovers.
    """
    if len(set(new_isr)) != len(new_isr) or not set(new_isr) <= set(partition.replicas):
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"{list(new_isr)} is not a valid ISR of {list(partition.replicas)}",
        )
    if partition.leader not in new_isr:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{list(new_isr)} does not contain the leader")
    if recovery_state not in (RECOVERED, RECOVERING):
        return Refusal(ErrorCode.INVALID_REQUEST, f"unknown leader recovery state {recovery_state}")
    if recovery_state == RECOVERING and len(new_isr) > 1:
        return Refusal(
            ErrorCode.INVALID_REQUEST, "the ISR of a recovering leader can have the leader only"
        )
    if recovery_state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        return Refusal(ErrorCode.INVALID_REQUEST, "the leader has already recovered")
    return None


def _refuse_ineligible(
    view: ReplicationView, new_isr: Sequence[BrokerState], version: int
) -> Refusal | None:
    for replica in new_isr:
        broker = view.cluster.broker(replica.broker_id)
        is_known = broker is not None and replica.broker_epoch in (
            UNCHECKED_BROKER_EPOCH,
            broker.broker_epoch,
        )
        if broker is None or not is_known or not broker.is_active:
            error = (
                ErrorCode.INELIGIBLE_REPLICA
                if version >= TOPIC_IDS_SINCE
                else ErrorCode.OPERATION_NOT_ATTEMPTED
            )
            return Refusal(error, f"broker {replica.broker_id} is not active, or has another epoch")
    return None
