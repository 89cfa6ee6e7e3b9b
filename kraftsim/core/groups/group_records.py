"""Groups and offsets as records of `__consumer_offsets`, and back.

Source: kafka.coordinator.group.GroupMetadataManager.
"""

from typing import Final

from kraftsim.core.groups.classic_group import NO_STATE_TIMESTAMP, ClassicGroup, GroupState
from kraftsim.core.groups.group_offsets import NO_EXPIRY, CommittedOffset, TopicPartition
from kraftsim.core.groups.member import Member
from kraftsim.core.groups.outbox import CoordinatorRecord
from protocol.coordinator.g01_offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.coordinator.g02_group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from protocol.coordinator.registry import build_record

OFFSET_VERSION: Final = 3
OFFSET_VERSION_WITH_EXPIRY: Final = 1
"""The only version with an expire timestamp; written where the client set a retention time
(OffsetCommit 2 to 4).
"""
GROUP_VERSION: Final = 3


def offset_record(
    group_id: str, partition: TopicPartition, offset: CommittedOffset
) -> CoordinatorRecord:
    """Return the record of a committed offset."""
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp,
        expire_timestamp=offset.expire_timestamp,
    )
    version = OFFSET_VERSION if offset.expire_timestamp == NO_EXPIRY else OFFSET_VERSION_WITH_EXPIRY
    return CoordinatorRecord(*build_record(_offset_key(group_id, partition), value, version))


def offset_tombstone(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    """Return the tombstone of an offset."""
    return CoordinatorRecord(*build_record(_offset_key(group_id, partition), None))


def group_record(group: ClassicGroup, assignments: dict[str, bytes]) -> CoordinatorRecord:
    """Return the record of a group with the assignment of each member."""
    return CoordinatorRecord(
        *build_record(
            GroupMetadataKey(group=group.group_id), group_value(group, assignments), GROUP_VERSION
        )
    )


def group_value(group: ClassicGroup, assignments: dict[str, bytes]) -> GroupMetadataValue:
    """Return the value of a group metadata record."""
    members = [
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata_for(group.protocol_name or ""),
            assignment=assignments[member.member_id],
        )
        for member in group.members.values()
    ]
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_since_ms,
        members=members,
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of a group."""
    return CoordinatorRecord(*build_record(GroupMetadataKey(group=group_id), None))


def read_offset(value: OffsetCommitValue, record_offset: int) -> CommittedOffset:
    """Return the committed offset of a record at an offset of the log."""
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp,
        expire_timestamp=value.expire_timestamp,
        record_offset=record_offset,
    )


def restore_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group of a record; its offsets are restored separately."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    for each in value.members:
        rebalance_timeout_ms = (
            each.session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout
        )
        group.add(
            Member(
                group_id=group_id,
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout_ms=rebalance_timeout_ms,
                session_timeout_ms=each.session_timeout,
                protocol_type=value.protocol_type,
                protocols=((value.protocol or "", each.subscription),),
                assignment=each.assignment,
            )
        )
    group.leader_id = value.leader
    group.state = GroupState.STABLE if value.members else GroupState.EMPTY
    group.state_since_ms = (
        value.current_state_timestamp if value.current_state_timestamp >= 0 else NO_STATE_TIMESTAMP
    )
    group.subscribed_topics = group.read_subscriptions()
    return group


def _offset_key(group_id: str, partition: TopicPartition) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=partition[0], partition=partition[1])
