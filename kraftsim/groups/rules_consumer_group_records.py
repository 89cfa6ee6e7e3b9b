"""The records of `__consumer_offsets`: consumer groups, classic groups and committed offsets,
written and read back.

`replay_change` is the same function after an append and on loading the log.
Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers,
kafka.coordinator.group.GroupMetadataManager.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kraftsim.events.event import Event
from kraftsim.groups.events import ConsumerGroupEnded, MemberEpochSet, PartitionGiven
from kraftsim.groups.rules_assignors import Shares
from kraftsim.groups.rules_classic_group import NO_STATE_TIMESTAMP, ClassicGroup, GroupState
from kraftsim.groups.rules_consumer_group import (
    ClassicTerms,
    ConsumerGroup,
    ConsumerMember,
    TopicsView,
)
from kraftsim.groups.rules_offsets import (
    NO_EXPIRY,
    CommittedOffset,
    CoordinatorRecord,
    TopicPartition,
)
from kraftsim.groups.rules_timing import Member
from protocol.coordinator.consumer_groups import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    TopicPartitions,
)
from protocol.coordinator.consumer_groups import (
    TopicPartition as TargetPartitions,
)
from protocol.coordinator.registry import build_record
from protocol.schema import Message

Change = tuple[Message, Message | None]
"""Key and value of a record; None is a tombstone."""


# --------------------------------------------------------------------------------------------------
# Consumer groups: one function per change


def epoch_change(group_id: str, epoch: int, metadata_hash: int) -> Change:
    """The group epoch is bumped."""
    return ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(
        epoch=epoch, metadata_hash=metadata_hash
    )


def member_change(group_id: str, member: ConsumerMember) -> Change:
    """A member joined, or its subscription changed. Topic names are sorted."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_names),
        subscribed_topic_regex=member.subscribed_regex or "",
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=_classic(member.classic),
    )
    return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value


def target_change(group_id: str, member_id: str, shares: Shares) -> Change:
    """The target assignment of a member changed."""
    rows = [
        TargetPartitions(topic_id=topic_id, partitions=list(numbers))
        for topic_id, numbers in shares.items()
    ]
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=rows)


def target_epoch_change(group_id: str, epoch: int, assigned_ms: int) -> Change:
    """The epoch of the target assignment of all members."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=max(assigned_ms, 0)
    )
    return ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value


def current_change(group_id: str, member: ConsumerMember, *, with_epochs: bool) -> Change:
    """The current assignment or epoch of a member.

    `with_epochs`: each partition with the epoch in which it was assigned (since 4.3).
    """
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=int(member.state),
        assigned_partitions=_rows(member, member.assigned, with_epochs=with_epochs),
        partitions_pending_revocation=_rows(
            member, member.pending_revocation, with_epochs=with_epochs
        ),
    )
    return ConsumerGroupCurrentMemberAssignmentKey(
        group_id=group_id, member_id=member.member_id
    ), value


def regex_change(
    group_id: str, expression: str, topics: tuple[str, ...], version: int, now_ms: int
) -> Change:
    """A regular expression matches other topics."""
    value = ConsumerGroupRegularExpressionValue(
        topics=list(topics), version=version, timestamp=now_ms
    )
    return ConsumerGroupRegularExpressionKey(
        group_id=group_id, regular_expression=expression
    ), value


def regex_tombstone(group_id: str, expression: str) -> Change:
    """A regular expression has no subscriber any more."""
    return ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression), None


def member_tombstones(group_id: str, member_id: str) -> list[Change]:
    """A member is removed: its current assignment, target assignment and metadata."""
    return [
        (ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str) -> list[Change]:
    """A group without members is removed."""
    return [
        (ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        (ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def _classic(terms: ClassicTerms | None) -> ClassicMemberMetadata | None:
    if terms is None:
        return None
    protocols = [
        ClassicProtocol(name=name, metadata=metadata) for name, metadata in terms.protocols
    ]
    return ClassicMemberMetadata(
        session_timeout_ms=terms.session_timeout_ms, supported_protocols=protocols
    )


def _rows(member: ConsumerMember, shares: Shares, *, with_epochs: bool) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=list(numbers),
            assignment_epochs=[member.assignment_epoch(topic_id, number) for number in numbers]
            if with_epochs
            else None,
        )
        for topic_id, numbers in shares.items()
    ]


# --------------------------------------------------------------------------------------------------
# Consumer groups: events of the members, by their records in the log

LEFT: Final = -1


class MemberEvents:
    """Emits the current assignments that are in the log of one `__consumer_offsets` partition: of
    each record once it is replicated, and the last ones that a coordinator has loaded.

    Tombstones are among them: the coordinator that wrote one may have stopped before it knew that
    it was replicated.
    """

    def __init__(
        self, emit: Callable[[Event], None], coordinator_partition: int, topics: TopicsView
    ) -> None:
        self._emit = emit
        self._coordinator_partition = coordinator_partition
        self._topics = topics
        self._loaded: dict[tuple[str, ...], tuple[Message, Message | None, int]] = {}
        """While the log is loaded: the last record of each member, and the last end of each group,
        with the offset.
        """

    def replayed(self, key: Message, value: Message | None, record_offset: int) -> None:
        """A record of a consumer group is loaded."""
        match key, value:
            case ConsumerGroupCurrentMemberAssignmentKey(), _:
                self._loaded[key.group_id, key.member_id] = (key, value, record_offset)
            case ConsumerGroupMetadataKey(), None:
                self._loaded[key.group_id,] = (key, value, record_offset)

    def begin(self) -> None:
        """The log is loaded."""
        for key, value, record_offset in self._loaded.values():
            self._emit_record(key, value, record_offset)
        self._loaded.clear()

    def replicated(self, changes: Sequence[Change], base_offset: int) -> None:
        """Changes are replicated, in consecutive records."""
        for record_offset, (key, value) in enumerate(changes, base_offset):
            self._emit_record(key, value, record_offset)

    def _emit_record(self, key: Message, value: Message | None, record_offset: int) -> None:
        match key, value:
            case (
                ConsumerGroupCurrentMemberAssignmentKey(),
                ConsumerGroupCurrentMemberAssignmentValue(),
            ):
                self._emit_current(key.group_id, key.member_id, value, record_offset)
            case ConsumerGroupCurrentMemberAssignmentKey(), None:
                self._emit_epoch(key.group_id, key.member_id, (LEFT, LEFT, 0), record_offset)
            case ConsumerGroupMetadataKey(), None:
                self._emit(
                    ConsumerGroupEnded(
                        coordinator_partition=self._coordinator_partition,
                        group_id=key.group_id,
                        record_offset=record_offset,
                    )
                )

    def _emit_current(
        self,
        group_id: str,
        member_id: str,
        value: ConsumerGroupCurrentMemberAssignmentValue,
        record_offset: int,
    ) -> None:
        epochs = (value.member_epoch, value.previous_member_epoch, value.state)
        self._emit_epoch(group_id, member_id, epochs, record_offset)
        for is_revoked, rows in (
            (False, value.assigned_partitions),
            (True, value.partitions_pending_revocation),
        ):
            for row in rows:
                name = self._topics.name_of(row.topic_id)
                for number in row.partitions if name is not None else ():
                    self._emit(
                        PartitionGiven(
                            coordinator_partition=self._coordinator_partition,
                            group_id=group_id,
                            member_id=member_id,
                            member_epoch=value.member_epoch,
                            topic=name or "",
                            partition=number,
                            is_revoked=is_revoked,
                            record_offset=record_offset,
                        )
                    )

    def _emit_epoch(
        self, group_id: str, member_id: str, epochs: tuple[int, int, int], record_offset: int
    ) -> None:
        member_epoch, previous_member_epoch, state = epochs
        self._emit(
            MemberEpochSet(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                member_id=member_id,
                member_epoch=member_epoch,
                previous_member_epoch=previous_member_epoch,
                member_state=state,
                record_offset=record_offset,
            )
        )


# --------------------------------------------------------------------------------------------------
# Consumer groups: replay

KEYS: Final = (
    ConsumerGroupMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
NO_EPOCH: Final = 0


def replay_change(
    key: Message,
    value: Message | None,
    *,
    find: Callable[[str], ConsumerGroup | None],
    make: Callable[[str], ConsumerGroup],
    drop: Callable[[str], None],
) -> None:
    """Apply one record to a group.

    Tombstones of an unknown group, or of a group with members, have no effect.
    """
    assert isinstance(key, KEYS), "a key of a consumer group"
    group = find(key.group_id) if value is None else make(key.group_id)
    if group is None:
        return
    match key, value:
        case ConsumerGroupMetadataKey(), None:
            drop(key.group_id)
        case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue():
            group.replay_epoch(value.epoch, value.metadata_hash)
        case ConsumerGroupMemberMetadataKey(), None:
            group.replay_gone(key.member_id)
        case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadataValue():
            group.replay_member(key.member_id, value)
        case ConsumerGroupTargetAssignmentMetadataKey(), None:
            group.replay_target_epoch(NO_EPOCH, 0)
        case (
            ConsumerGroupTargetAssignmentMetadataKey(),
            ConsumerGroupTargetAssignmentMetadataValue(),
        ):
            group.replay_target_epoch(value.assignment_epoch, value.assignment_timestamp)
        case ConsumerGroupTargetAssignmentMemberKey(), None:
            group.replay_target(key.member_id, None)
        case ConsumerGroupTargetAssignmentMemberKey(), ConsumerGroupTargetAssignmentMemberValue():
            group.replay_target(
                key.member_id,
                {row.topic_id: tuple(sorted(row.partitions)) for row in value.topic_partitions},
            )
        case ConsumerGroupCurrentMemberAssignmentKey(), None:
            group.replay_current(key.member_id, None)
        case ConsumerGroupCurrentMemberAssignmentKey(), ConsumerGroupCurrentMemberAssignmentValue():
            group.replay_current(key.member_id, value)
        case ConsumerGroupRegularExpressionKey(), None:
            group.resolved.pop(key.regular_expression, None)
        case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue():
            group.resolved[key.regular_expression] = tuple(value.topics)


# --------------------------------------------------------------------------------------------------
# Classic groups and committed offsets

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
