"""A share group of KIP-932: its members, their assignments, and the share-partitions whose state is
initialized; and the records of all that.

Several members may have the same partition, so nothing is revoked: a member follows the target of
the group epoch at its next heartbeat. A partition is assigned only after its state is initialized
at the share coordinator. `rules_share_groups` decides; only `replay_*` changes a `ShareGroup`.
Whatever a coordinator of Apache Kafka keeps in hash maps is kept in the order of these here, since
records and responses have that order.
Source: KIP-932, org.apache.kafka.coordinator.group.modern.share.{ShareGroup, ShareGroupMember},
GroupCoordinatorRecordHelpers.newShareGroup*.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, Final

from msgspec import Struct

from kraftsim.groups.rules_assignors import (
    NO_SHARES,
    Shares,
    hash_set_order,
    java_order,
    uuid_hash,
)
from kraftsim.groups.rules_consumer_group_records import Change
from kraftsim.groups.rules_java_maps import JavaMap, JavaSet
from kraftsim.groups.rules_offsets import GroupOffsets
from kraftsim.groups.rules_timing import java_hash
from protocol.coordinator.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)
from protocol.errors import ErrorCode

SHARE: Final = "share"
LEFT: Final = -1
NOT_REPLAYED: Final = -1
UNKNOWN_TOPIC: Final = "<UNKNOWN>"
STABLE: Final = 0
"""The only state of a member (MemberState)."""


# --------------------------------------------------------------------------------------------------
# Members


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupMember:
    """A member, as its records have it."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: tuple[str, ...] = ()
    """In the order of a HashSet."""
    member_epoch: int = 0
    previous_member_epoch: int = LEFT
    assigned: Shares = field(default_factory=dict)

    def has_same_metadata(self, other: "ShareGroupMember") -> bool:
        """Return whether the metadata records of both would be equal."""
        return (
            self.rack_id == other.rack_id
            and self.client_id == other.client_id
            and self.client_host == other.client_host
            and frozenset(self.subscribed_names) == frozenset(other.subscribed_names)
        )


def same_shares(first: Shares, second: Shares) -> bool:
    """Return whether two assignments have the same partitions, in whatever order."""
    return first.keys() == second.keys() and all(
        frozenset(numbers) == frozenset(second[topic_id]) for topic_id, numbers in first.items()
    )


# --------------------------------------------------------------------------------------------------
# Share-partitions whose state is initialized, or will be


class TopicStates(Struct, frozen=True):
    """The partitions of a topic; `since_ms` is the wall clock of the replay, -1 if there was
    none.
    """

    name: str
    partitions: tuple[int, ...]
    since_ms: int = NOT_REPLAYED


StatesByTopic = Mapping[bytes, TopicStates]
NO_STATES: Final[StatesByTopic] = {}


class SharePartitions(Struct, frozen=True):
    """What the record of the share-partitions of a group says."""

    initializing: StatesByTopic = {}
    initialized: StatesByTopic = {}
    deleting: tuple[bytes, ...] = ()


def combined(first: StatesByTopic, second: StatesByTopic) -> StatesByTopic:
    """Return the partitions of both; the second one has the newer names and times
    (GroupMetadataManager.combineInitMaps).
    """
    topic_ids = JavaSet.of(uuid_hash, first)
    for topic_id in second:
        topic_ids.add(topic_id)
    found: JavaMap[bytes, TopicStates] = JavaMap(uuid_hash)
    for topic_id in topic_ids:
        former, newer = first.get(topic_id), second.get(topic_id)
        numbers = JavaSet.of(int, former.partitions if former is not None else ())
        for number in newer.partitions if newer is not None else ():
            numbers.add(number)
        last = newer or former
        assert last is not None, "each topic is in one of both"
        found.put(topic_id, TopicStates(last.name, tuple(numbers), last.since_ms))
    return dict(found.items())


def without_partitions(
    states: StatesByTopic, gone: Mapping[bytes, Collection[int]]
) -> StatesByTopic:
    """Return states without some partitions, and without topics that have none left."""
    kept: JavaMap[bytes, TopicStates] = JavaMap(uuid_hash)
    for topic_id, topic in states.items():
        if topic_id not in gone:
            kept.put(topic_id, topic)
            continue
        removed = frozenset(gone[topic_id])
        numbers = [each for each in hash_set_order(topic.partitions, int) if each not in removed]
        if numbers:
            kept.put(topic_id, TopicStates(topic.name, tuple(numbers), topic.since_ms))
    return dict(kept.items())


def without_topics(states: StatesByTopic, gone: Collection[bytes]) -> StatesByTopic:
    """Return states without some topics, in the order of a copied HashMap."""
    copied = JavaMap.copied(uuid_hash, states.items())
    return {topic_id: topic for topic_id, topic in copied.items() if topic_id not in gone}


def ordered(rows: Iterable[tuple[bytes, TopicStates]]) -> StatesByTopic:
    """Return states in the order of a new HashMap."""
    kept = dict(rows)
    return {topic_id: kept[topic_id] for topic_id in java_order(kept, uuid_hash)}


# --------------------------------------------------------------------------------------------------
# The group


class ShareGroupState(Enum):
    """Group states; the values are Kafka's names."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareGroup:
    """Members are kept in the order in which they joined.

    `first_epoch` is that of a group without members: 1 since 4.3 (KIP-1263), 0 before.
    """

    type_name: ClassVar[str] = SHARE
    protocol_type: ClassVar[str] = SHARE
    expires: ClassVar[bool] = False
    gives_way: ClassVar[bool] = False

    def __init__(self, group_id: str, first_epoch: int = 0) -> None:
        self.group_id = group_id
        self.offsets = GroupOffsets()
        """Always empty: a share group commits no offsets."""
        self.group_epoch = first_epoch
        self.metadata_hash = 0
        self.assignment_epoch = first_epoch
        self.assigned_ms = 0
        """The wall clock when the target assignment was computed; 0 is unknown."""
        self.members: dict[str, ShareGroupMember] = {}
        self.targets: dict[str, Shares] = {}
        self.partitions: SharePartitions | None = None
        """None before the first record."""
        self.seen_topics = NOT_REPLAYED
        """The version of the topics view at the last update."""
        self.is_over = False
        self._subscribers: dict[str, int] = {}
        self._assigned: dict[bytes, dict[int, int]] = {}
        """By topic and partition: how many target assignments have it."""
        self._has_unassigned: bool | None = None

    # Queries
    # ----------------------------------------------------------------------------------------------

    @property
    def is_dead(self) -> bool:
        """Whether the group is removed: requests and callbacks for it have no effect."""
        return self.is_over

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    @property
    def state(self) -> ShareGroupState:
        """The state of the group."""
        if self.is_over:
            return ShareGroupState.DEAD
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return self.state.value

    @property
    def topic_names(self) -> list[str]:
        """The topics that any member subscribes to, existing or not."""
        return list(self._subscribers)

    @property
    def initialized(self) -> StatesByTopic:
        """The share-partitions that may be assigned."""
        return NO_STATES if self.partitions is None else self.partitions.initialized

    @property
    def has_same_topics(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return all(count == len(self.members) for count in self._subscribers.values())

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether any member subscribes to a topic."""
        return topic in self._subscribers

    @property
    def has_unassigned(self) -> bool:
        """Whether the targets of a subscribed topic are not exactly its initialized partitions
        (GroupMetadataManager.initializedAssignmentPending).
        """
        if self._has_unassigned is None:
            self._has_unassigned = any(
                topic.name in self._subscribers
                and self._assigned.get(topic_id, {}).keys() != frozenset(topic.partitions)
                for topic_id, topic in self.initialized.items()
            )
        return self._has_unassigned

    def refuse_commit(
        self,
        member_id: str,
        member_epoch: int,
        api_version: int | None,
        partitions: Iterable[tuple[bytes, int]] = (),
    ) -> ErrorCode | None:
        """Return GROUP_ID_NOT_FOUND."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def refuse_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode | None:
        """Return None: like an unknown group, it has no offsets."""
        return None

    def refuse_offset_deletion(self) -> ErrorCode | None:
        """Return GROUP_ID_NOT_FOUND."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def tombstones(self) -> list[Change]:
        """Return the records that remove the group with all its members."""
        group_id, members = self.group_id, list(self.members)
        return [
            *(current_tombstone(group_id, each) for each in members),
            *(target_tombstone(group_id, each) for each in members),
            (ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
            *(member_tombstone(group_id, each) for each in members),
            (ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
            (ShareGroupMetadataKey(group_id=group_id), None),
        ]

    # Replay
    # ----------------------------------------------------------------------------------------------

    def end(self) -> None:
        """The group is removed, or another broker coordinates it."""
        self.is_over = True

    def replay_epoch(self, value: ShareGroupMetadataValue) -> None:
        """The group epoch is bumped: members, subscriptions, topics or initialized partitions
        changed.
        """
        self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def replay_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        """A member joined, or its subscription changed; None: it is removed."""
        known = self.members.get(member_id)
        if value is None and known is None:
            return
        self._count(known, -1)
        if value is None:
            del self.members[member_id]
            return
        self.members[member_id] = moved = replace(
            known or ShareGroupMember(member_id=member_id),
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_names=names_in_order(value.subscribed_topic_names),
        )
        self._count(moved, 1)

    def _count(self, member: ShareGroupMember | None, step: int) -> None:
        self._has_unassigned = None
        for name in () if member is None else member.subscribed_names:
            count = self._subscribers.get(name, 0) + step
            if count:
                self._subscribers[name] = count
            else:
                del self._subscribers[name]

    def replay_target(
        self, member_id: str, value: ShareGroupTargetAssignmentMemberValue | None
    ) -> None:
        """The target assignment of a member changed; None: the member is removed."""
        self._count_target(self.targets.pop(member_id, NO_SHARES), -1)
        if value is not None:
            self.targets[member_id] = target = shares_in_order(value.topic_partitions)
            self._count_target(target, 1)

    def _count_target(self, shares: Shares, step: int) -> None:
        self._has_unassigned = None
        for topic_id, numbers in shares.items():
            counts = self._assigned.setdefault(topic_id, {})
            for number in numbers:
                counts[number] = counts.get(number, 0) + step
                if not counts[number]:
                    del counts[number]
            if not counts:
                del self._assigned[topic_id]

    def replay_target_epoch(self, value: ShareGroupTargetAssignmentMetadataValue | None) -> None:
        """The target assignment of all members is for this epoch; None: there is none."""
        self.assignment_epoch = LEFT if value is None else value.assignment_epoch
        self.assigned_ms = 0 if value is None else value.assignment_timestamp

    def replay_current(
        self, member_id: str, value: ShareGroupCurrentMemberAssignmentValue | None
    ) -> None:
        """The assignment or epoch of a member changed; None: the member has left."""
        known = self.members.get(member_id)
        if value is None:
            if known is not None:
                self.members[member_id] = replace(
                    known, member_epoch=LEFT, previous_member_epoch=LEFT, assigned=NO_SHARES
                )
            return
        self.members[member_id] = replace(
            known or ShareGroupMember(member_id=member_id),
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            assigned=shares_in_order(value.assigned_partitions),
        )

    def replay_partitions(
        self, value: ShareGroupStatePartitionMetadataValue | None, wall_ms: int
    ) -> None:
        """States are being initialized, initialized or deleted; None: there are none."""
        self._has_unassigned = None
        self.partitions = (
            None
            if value is None
            else SharePartitions(
                _states(value.initializing_topics, wall_ms),
                _states(value.initialized_topics, wall_ms),
                tuple(java_order((row.topic_id for row in value.deleting_topics), uuid_hash)),
            )
        )

    def begin(self, wall_ms: int) -> None:
        """The log is replayed: what is being initialized counts from now."""
        known = self.partitions
        if known is not None and known.initializing:
            initializing = {
                topic_id: TopicStates(topic.name, topic.partitions, wall_ms)
                for topic_id, topic in known.initializing.items()
            }
            self.partitions = SharePartitions(initializing, known.initialized, known.deleting)


def names_in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return topic names in the order of a HashSet that is made of them."""
    return tuple(hash_set_order(dict.fromkeys(names), java_hash))


def shares_in_order(rows: Sequence[TopicPartition] | Sequence[TopicPartitions]) -> Shares:
    """Return partitions by topic in the order that they have after a replay."""
    found = {row.topic_id: tuple(hash_set_order(row.partitions, int)) for row in rows}
    return {topic_id: found[topic_id] for topic_id in java_order(found, uuid_hash)}


def _states(rows: Iterable[TopicPartitionsInfo], wall_ms: int) -> StatesByTopic:
    return ordered(
        (
            row.topic_id,
            TopicStates(row.topic_name, tuple(hash_set_order(row.partitions, int)), wall_ms),
        )
        for row in rows
    )


# --------------------------------------------------------------------------------------------------
# Records: one function per change


def epoch_change(group_id: str, epoch: int, metadata_hash: int) -> Change:
    """The group epoch is bumped."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return ShareGroupMetadataKey(group_id=group_id), value


def member_change(group_id: str, member: ShareGroupMember) -> Change:
    """A member joined, or its subscription changed. Topic names are sorted."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_names),
    )
    return ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value


def target_change(group_id: str, member_id: str, shares: Shares) -> Change:
    """The target assignment of a member changed."""
    rows = [
        TopicPartition(topic_id=topic_id, partitions=list(numbers))
        for topic_id, numbers in shares.items()
    ]
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return key, ShareGroupTargetAssignmentMemberValue(topic_partitions=rows)


def target_epoch_change(group_id: str, epoch: int, assigned_ms: int) -> Change:
    """The epoch of the target assignment of all members."""
    value = ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=assigned_ms
    )
    return ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value


def current_change(group_id: str, member: ShareGroupMember) -> Change:
    """The current assignment or epoch of a member."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=STABLE,
        assigned_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=list(numbers))
            for topic_id, numbers in member.assigned.items()
        ],
    )
    return ShareGroupCurrentMemberAssignmentKey(
        group_id=group_id, member_id=member.member_id
    ), value


def partitions_change(
    group_id: str,
    initializing: StatesByTopic,
    initialized: StatesByTopic,
    deleting: Iterable[tuple[bytes, str]],
) -> Change:
    """States of share-partitions are being initialized, initialized, or deleted."""
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_infos(initializing),
        initialized_topics=_infos(initialized),
        deleting_topics=[
            TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in deleting
        ],
    )
    return ShareGroupStatePartitionMetadataKey(group_id=group_id), value


def _infos(states: StatesByTopic) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(
            topic_id=topic_id, topic_name=topic.name, partitions=list(topic.partitions)
        )
        for topic_id, topic in states.items()
    ]


def current_tombstone(group_id: str, member_id: str) -> Change:
    """A member has no assignment any more."""
    return ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None


def target_tombstone(group_id: str, member_id: str) -> Change:
    """A member has no target any more."""
    return ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None


def member_tombstone(group_id: str, member_id: str) -> Change:
    """A member is removed."""
    return ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None
