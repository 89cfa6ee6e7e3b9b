"""Groups and offsets as records of `__consumer_offsets`, and back.   Source: kafka.coordinator.group.GroupMetadataManager."""

from typing import Final

from kraftsim.core.groups.classic_group import NO_STATE_TIMESTAMP, ClassicGroup, GroupState
from kraftsim.core.groups.group_offsets import NO_EXPIRY, CommittedOffset, TopicPartition
from kraftsim.core.groups.member import Member
from kraftsim.core.groups.outbox import CoordinatorRecord
from protocol.coordinator.g01_offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.coordinator.g02_group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from protocol.coordinator.registry import build_record

OFFSET_VERSION: Final = 3
OFFSET_VERSION_WITH_EXPIRY: Final = 1
"""The only version that can say when one offset expires, so it is written where a client has asked for that (OffsetCommit 2 to 4)."""
GROUP_VERSION: Final = 3


def offset_record(group_id: str, partition: TopicPartition, offset: CommittedOffset) -> CoordinatorRecord:
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
    """Return the record that forgets an offset."""
    return CoordinatorRecord(*build_record(_offset_key(group_id, partition), None))


def group_record(group: ClassicGroup, assignments: dict[str, bytes]) -> CoordinatorRecord:
    """Return the record of a group with these assignments, by member."""
    return CoordinatorRecord(*build_record(GroupMetadataKey(group=group.group_id), group_value(group, assignments), GROUP_VERSION))


def group_value(group: ClassicGroup, assignments: dict[str, bytes]) -> GroupMetadataValue:
    """Return what the record of a group says."""
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
    """Return the record that forgets a group."""
    return CoordinatorRecord(*build_record(GroupMetadataKey(group=group_id), None))


def read_offset(value: OffsetCommitValue, record_offset: int) -> CommittedOffset:
    """Return the offset that a record at some place in the log commits."""
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp,
        expire_timestamp=value.expire_timestamp,
        record_offset=record_offset,
    )


def restore_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group as a record says it was; its offsets are elsewhere."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    for each in value.members:
        rebalance_timeout_ms = each.session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout
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
    group.state_since_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else NO_STATE_TIMESTAMP
    group.subscribed_topics = group.read_subscriptions()
    return group


def _offset_key(group_id: str, partition: TopicPartition) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=partition[0], partition=partition[1])
