"""The share-partitions of the share groups of one coordinator partition: their states begin before
they are assigned, begin again at other offsets, and end with the group.

The share coordinator keeps the states; what it has to do is in the answers. The shell asks it, and
comes back with the result (`share_partition_states`).
Source: KIP-932, org.apache.kafka.coordinator.group.GroupMetadataManager.{
maybeCreateInitializeShareGroupStateRequest, initializeShareGroupState, alterShareGroupOffsets,
sharePartitionsEligibleForOffsetDeletion, shareGroupBuildPartitionDeleteRequest,
maybeCleanupShareGroupState}.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Final

from msgspec import Struct

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_assignors import java_order, uuid_hash
from kraftsim.groups.rules_consumer_group_records import Change
from kraftsim.groups.rules_java_maps import JavaSet
from kraftsim.groups.rules_other_groups import OtherGroups, ShardParts
from kraftsim.groups.rules_share_group import (
    NO_STATES,
    SHARE,
    UNKNOWN_TOPIC,
    ShareGroup,
    SharePartitions,
    StatesByTopic,
    TopicStates,
    combined,
    ordered,
    partitions_change,
    without_partitions,
    without_topics,
)
from kraftsim.groups.rules_share_group_events import ShareGroupEvents
from kraftsim.groups.rules_timing import GroupMoment, OtherAnswer, java_hash
from kraftsim.share_groups.rules_share_states import UNINITIALIZED_START_OFFSET, SharePartitionKey
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
)
from protocol.errors import ErrorCode
from protocol.schema import Message

FIRST_OFFSET: Final = 0

InitialState = tuple[SharePartitionKey, int, int]
"""A share-partition, its state epoch and its start offset."""


class WrittenAnswer(OtherAnswer, frozen=True):
    """Whether a change that no client asked for is replicated."""

    error: ErrorCode


class PartitionToAlter(Struct, frozen=True):
    """A partition of AlterShareGroupOffsets, and its new start offset."""

    topic: str
    partition: int
    start_offset: int


class AlteringAnswer(OtherAnswer, frozen=True, kw_only=True):
    """The states that have to be initialized again, or the error of the whole request."""

    error: ErrorCode = ErrorCode.NONE
    why: str | None = None
    initial: tuple[InitialState, ...] = ()


class DeletingAnswer(OtherAnswer, frozen=True, kw_only=True):
    """The states that have to be deleted, or the error of the whole request.

    `unknown` are the topics of the request that have no states, in its order.
    """

    error: ErrorCode = ErrorCode.NONE
    why: str | None = None
    keys: tuple[SharePartitionKey, ...] = ()
    unknown: tuple[str, ...] = ()


class GroupDeletionAnswer(OtherAnswer, frozen=True):
    """By share group: the states that have to be deleted before the group is, or the error.

    Other groups are in neither map.
    """

    keys: Mapping[str, tuple[SharePartitionKey, ...]]
    errors: Mapping[str, ErrorCode]


class ShareGroupStates(OtherGroups):
    """The records of share groups, and the states of their share-partitions."""

    name: ClassVar[str] = SHARE
    _wall_ms = 0
    """The wall clock of the present input."""

    def __init__(self, parts: ShardParts) -> None:
        super().__init__(parts)
        self._events = ShareGroupEvents(parts.emit, parts.number, parts.topics)

    # Groups
    # ----------------------------------------------------------------------------------------------

    def _group_of(self, group_id: str, *, makes: bool) -> ShareGroup | Refusal:
        """Return a share group; a new one is not in the table yet."""
        group = self._parts.table.find(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is not None:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if not makes:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return self._blank(group_id)

    def _blank(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id, self._parts.settings.consumer_first_epoch)

    def _existing(self, group_id: str) -> ShareGroup:
        group = self._parts.table.others[group_id]
        assert isinstance(group, ShareGroup), "its records made it"
        return group

    def _all(self) -> list[ShareGroup]:
        others = self._parts.table.others.values()
        return [group for group in others if isinstance(group, ShareGroup)]

    # The states of share-partitions begin
    # ----------------------------------------------------------------------------------------------

    def _known_topics(self, group: ShareGroup) -> Collection[bytes]:
        """Return the topics whose new partitions are read from their start, not from where the
        group begins (since 4.4).
        """
        known = group.partitions
        if known is None or not self._parts.settings.share_reads_added_whole:
            return ()
        return frozenset((*known.initialized, *known.initializing))

    def _initialize(
        self, group: ShareGroup, known_topics: Collection[bytes], changes: list[Change]
    ) -> tuple[InitialState, ...]:
        """Record and return the subscribed share-partitions that have no state yet, or whose
        initialization takes longer than group.share.initialize.retry.interval.ms.
        """
        known = group.partitions or SharePartitions()
        retry_ms = self._parts.settings.share_initialize_retry_ms
        is_recent = {
            topic_id: topic
            for topic_id, topic in known.initializing.items()
            if self._wall_ms - topic.since_ms < retry_ms
        }
        begun = combined(known.initialized, ordered(is_recent.items()))
        lacking: dict[bytes, TopicStates] = {}
        for name in java_order(group.topic_names, java_hash):
            found = self._parts.topics.find(name)
            if found is None:
                continue
            topic_id, count = found
            there = frozenset(begun[topic_id].partitions) if topic_id in begun else frozenset()
            if len(there) < count:
                numbers = tuple(number for number in range(count) if number not in there)
                lacking[topic_id] = TopicStates(name, numbers, self._wall_ms)
        if not lacking:
            return ()
        wanted = ordered(lacking.items())
        self.do(changes, self._initializing_change(group, wanted))
        return tuple(
            (
                SharePartitionKey(group.group_id, topic_id, number),
                group.group_epoch,
                FIRST_OFFSET if topic_id in known_topics else UNINITIALIZED_START_OFFSET,
            )
            for topic_id, topic in wanted.items()
            for number in topic.partitions
        )

    def _initializing_change(self, group: ShareGroup, wanted: StatesByTopic) -> Change:
        """Return the record with further states that are being initialized; topics among them are
        not deleted any longer.
        """
        known = group.partitions
        if known is None:
            return partitions_change(group.group_id, wanted, NO_STATES, ())
        initializing = combined(known.initializing, wanted)
        deleting = JavaSet.of(uuid_hash, known.deleting)
        for topic_id in initializing:
            deleting.pop(topic_id)
        return partitions_change(
            group.group_id, initializing, known.initialized, self._named(deleting)
        )

    def _named(self, topic_ids: Iterable[bytes]) -> list[tuple[bytes, str]]:
        """Return topics with their names (GroupMetadataManager.attachTopicName)."""
        return [
            (topic_id, self._parts.topics.name_of(topic_id) or UNKNOWN_TOPIC)
            for topic_id in java_order(topic_ids, uuid_hash)
        ]

    def initialized(
        self, waiter: int, group_id: str, keys: Sequence[SharePartitionKey], now: GroupMoment
    ) -> None:
        """The states of share-partitions are initialized; reply with a WrittenAnswer."""
        self._wall_ms = now.wall_ms
        group = self._parts.table.others.get(group_id)
        if not isinstance(group, ShareGroup):
            self._parts.outbox.reply(waiter, WrittenAnswer(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        numbers = _by_topic(keys)
        new = ordered(
            (
                topic_id,
                TopicStates(
                    self._parts.topics.name_of(topic_id) or UNKNOWN_TOPIC,
                    tuple(JavaSet.of(int, numbers[topic_id])),
                    now.wall_ms,
                ),
            )
            for topic_id in numbers
        )
        known = group.partitions
        change = (
            partitions_change(group_id, NO_STATES, new, ())
            if known is None
            else partitions_change(
                group_id,
                without_partitions(known.initializing, numbers),
                combined(known.initialized, new),
                self._named(known.deleting),
            )
        )
        self._write_for(waiter, [change])

    def not_initialized(
        self, waiter: int, group_id: str, keys: Sequence[SharePartitionKey], now: GroupMoment
    ) -> None:
        """The initialization of states has failed, so that the next heartbeat tries it again; reply
        with a WrittenAnswer.
        """
        self._wall_ms = now.wall_ms
        group = self._parts.table.others.get(group_id)
        known = group.partitions if isinstance(group, ShareGroup) else None
        changes = (
            []
            if known is None or not known.initializing or not keys
            else [
                partitions_change(
                    group_id,
                    without_partitions(known.initializing, _by_topic(keys)),
                    known.initialized,
                    self._named(known.deleting),
                )
            ]
        )
        self._write_for(waiter, changes)

    def alter(
        self, waiter: int, group_id: str, rows: Sequence[PartitionToAlter], now: GroupMoment
    ) -> None:
        """Record that states begin again at other offsets; reply with an AlteringAnswer.

        Rows of topics and partitions that do not exist are not among them. An unknown group is
        created since 4.2.
        """
        self._wall_ms = now.wall_ms
        makes = self._parts.settings.share_alters_unknown
        group = self._group_of(group_id, makes=makes)
        if not isinstance(group, Refusal) and group.members:
            why = "The group is not empty."
            group = Refusal(ErrorCode.NON_EMPTY_GROUP, why)
        if isinstance(group, Refusal):
            self._parts.outbox.reply(waiter, AlteringAnswer(error=group.error, why=group.why))
            return
        names: dict[bytes, str] = {}
        offsets: dict[bytes, dict[int, int]] = {}
        for row in rows:
            found = self._parts.topics.find(row.topic)
            if found is not None and row.partition < found[1]:
                names[found[0]] = row.topic
                offsets.setdefault(found[0], {})[row.partition] = row.start_offset
        wanted = ordered(
            (
                topic_id,
                TopicStates(names[topic_id], tuple(java_order(numbers, int)), now.wall_ms),
            )
            for topic_id, numbers in offsets.items()
        )
        changes: list[Change] = []
        if wanted:
            self.do(changes, self._initializing_change(group, wanted))
        initial = tuple(
            (
                SharePartitionKey(group_id, topic_id, number),
                group.group_epoch,
                offsets[topic_id][number],
            )
            for topic_id, topic in wanted.items()
            for number in topic.partitions
        )
        self._write(
            changes,
            lambda error: self._parts.outbox.reply(
                waiter,
                AlteringAnswer(initial=initial)
                if error is ErrorCode.NONE
                else AlteringAnswer(error=error),
            ),
        )

    # They end
    # ----------------------------------------------------------------------------------------------

    def begin_deletion(self, waiter: int, group_ids: Sequence[str], now: GroupMoment) -> None:
        """Record that all states of empty share groups are deleted; reply with a
        GroupDeletionAnswer.
        """
        self._wall_ms = now.wall_ms
        changes: list[Change] = []
        keys: dict[str, tuple[SharePartitionKey, ...]] = {}
        errors: dict[str, ErrorCode] = {}
        for group_id in group_ids:
            group = self._parts.table.others.get(group_id)
            if not isinstance(group, ShareGroup):
                continue
            if group.members:
                errors[group_id] = ErrorCode.NON_EMPTY_GROUP
            elif group.partitions is not None:
                keys[group_id] = self._delete_all(group, group.partitions, changes)

        def reply(error: ErrorCode) -> None:
            failed = dict.fromkeys(group_ids, error)
            self._parts.outbox.reply(
                waiter,
                GroupDeletionAnswer(keys, errors)
                if error is ErrorCode.NONE
                else GroupDeletionAnswer({}, failed),
            )

        self._write(changes, reply)

    def _delete_all(
        self, group: ShareGroup, known: SharePartitions, changes: list[Change]
    ) -> tuple[SharePartitionKey, ...]:
        """Deletions that have failed before are tried again, unless their topic is gone."""
        candidates = combined(known.initialized, known.initializing)
        again: dict[bytes, TopicStates] = {}
        for topic_id in known.deleting:
            name = self._parts.topics.name_of(topic_id)
            found = None if name is None else self._parts.topics.find(name)
            if name is not None and found is not None:
                again[topic_id] = TopicStates(name, tuple(range(found[1])))
        if again:
            candidates = combined(candidates, ordered(again.items()))
        deleting = [
            (topic_id, candidates[topic_id].name) for topic_id in java_order(candidates, uuid_hash)
        ]
        self.do(changes, partitions_change(group.group_id, NO_STATES, NO_STATES, deleting))
        return tuple(
            SharePartitionKey(group.group_id, topic_id, number)
            for topic_id, topic in candidates.items()
            for number in topic.partitions
        )

    def delete_offsets(
        self, waiter: int, group_id: str, topics: Sequence[str], now: GroupMoment
    ) -> None:
        """Record that the states of topics are deleted; reply with a DeletingAnswer."""
        self._wall_ms = now.wall_ms
        group = self._parts.table.find(group_id)
        answer: DeletingAnswer | None = None
        if not isinstance(group, ShareGroup):
            what = "not found" if group is None else "is not a share group"
            answer = DeletingAnswer(
                error=ErrorCode.GROUP_ID_NOT_FOUND, why=f"Group {group_id} {what}."
            )
        elif group.members:
            why = "The group is not empty."
            answer = DeletingAnswer(error=ErrorCode.NON_EMPTY_GROUP, why=why)
        if answer is not None or not isinstance(group, ShareGroup):
            self._parts.outbox.reply(waiter, answer or DeletingAnswer())
            return
        known = group.partitions
        if known is None:
            self._write([], lambda error: self._reply_deleting(waiter, DeletingAnswer(), error))
            return
        keys: list[SharePartitionKey] = []
        unknown: list[str] = []
        initialized = dict(known.initialized)
        deleting = JavaSet.of(uuid_hash, known.deleting)
        for name in topics:
            found = self._parts.topics.find(name)
            topic = None if found is None else initialized.pop(found[0], None)
            numbers: Sequence[int] = ()
            if found is not None and topic is not None:
                numbers = topic.partitions
                deleting.add(found[0])
            elif found is not None and found[0] in deleting:
                numbers = range(found[1])
            else:
                unknown.append(name)
            if found is not None:
                keys += [SharePartitionKey(group_id, found[0], number) for number in numbers]
        changes: list[Change] = []
        change = partitions_change(
            group_id, known.initializing, ordered(initialized.items()), self._named(deleting)
        )
        self.do(changes, change)
        given = DeletingAnswer(keys=tuple(keys), unknown=tuple(unknown))
        self._write(changes, lambda error: self._reply_deleting(waiter, given, error))

    def _reply_deleting(self, waiter: int, answer: DeletingAnswer, error: ErrorCode) -> None:
        self._parts.outbox.reply(
            waiter, answer if error is ErrorCode.NONE else DeletingAnswer(error=error)
        )

    def deleted(
        self, waiter: int, group_id: str, topic_ids: Collection[bytes], now: GroupMoment
    ) -> None:
        """The states of topics are deleted; reply with a WrittenAnswer."""
        self._wall_ms = now.wall_ms
        group = self._parts.table.others.get(group_id)
        known = group.partitions if isinstance(group, ShareGroup) else None
        if known is None:
            self._write_for(waiter, [])
            return
        deleting = [each for each in known.deleting if each not in topic_ids]
        change = partitions_change(
            group_id, known.initializing, known.initialized, self._named(deleting)
        )
        self._write_for(waiter, [change])

    def forget_topics(self, now: GroupMoment) -> None:
        """Forget the states of deleted topics; the share coordinator deletes them by itself."""
        self._wall_ms = now.wall_ms
        for group in self._all():
            known = group.partitions
            if known is None:
                continue
            topic_ids = dict.fromkeys((*known.initializing, *known.initialized, *known.deleting))
            gone = [each for each in topic_ids if self._parts.topics.name_of(each) is None]
            if not gone:
                continue
            changes: list[Change] = []
            kept = JavaSet.of(uuid_hash, known.deleting)
            self.do(
                changes,
                partitions_change(
                    group.group_id,
                    without_topics(known.initializing, gone),
                    without_topics(known.initialized, gone),
                    self._named(each for each in kept if each not in gone),
                ),
            )
            self.write(changes, lambda error: None)

    # Writing
    # ----------------------------------------------------------------------------------------------

    def _write_for(self, waiter: int, changes: Iterable[Change]) -> None:
        """Apply and write changes, and reply with a WrittenAnswer once everything that was written
        before is replicated, too.
        """
        written: list[Change] = []
        self.do(written, *changes)
        self._write(written, lambda error: self._parts.outbox.reply(waiter, WrittenAnswer(error)))

    def _write(self, changes: Sequence[Change], on_end: Callable[[ErrorCode], None]) -> None:
        """Write changes; without any, wait for what was written before."""
        if changes:
            self.write(changes, on_end)
            return
        self._parts.outbox.store_changes(
            (), lambda stored: None if stored.is_late else on_end(stored.error)
        )

    # Replay
    # ----------------------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one record; tombstones of what is unknown have no effect."""
        assert isinstance(
            key,
            ShareGroupMetadataKey
            | ShareGroupMemberMetadataKey
            | ShareGroupTargetAssignmentMetadataKey
            | ShareGroupTargetAssignmentMemberKey
            | ShareGroupCurrentMemberAssignmentKey
            | ShareGroupStatePartitionMetadataKey,
        ), "a key of a share group"
        group = self._parts.table.others.get(key.group_id)
        if not isinstance(group, ShareGroup):
            if value is None:
                return
            group = self._make(key.group_id)
        match key, value:
            case ShareGroupMetadataKey(), None:
                del self._parts.table.others[key.group_id]
                group.end()
            case ShareGroupMetadataKey(), ShareGroupMetadataValue():
                group.replay_epoch(value)
            case ShareGroupMemberMetadataKey(), ShareGroupMemberMetadataValue() | None:
                group.replay_member(key.member_id, value)
            case (
                ShareGroupTargetAssignmentMetadataKey(),
                ShareGroupTargetAssignmentMetadataValue() | None,
            ):
                group.replay_target_epoch(value)
            case (
                ShareGroupTargetAssignmentMemberKey(),
                ShareGroupTargetAssignmentMemberValue() | None,
            ):
                group.replay_target(key.member_id, value)
            case (
                ShareGroupCurrentMemberAssignmentKey(),
                ShareGroupCurrentMemberAssignmentValue() | None,
            ):
                group.replay_current(key.member_id, value)
            case (
                ShareGroupStatePartitionMetadataKey(),
                ShareGroupStatePartitionMetadataValue() | None,
            ):
                group.replay_partitions(value, self._wall_ms)

    def _make(self, group_id: str) -> ShareGroup:
        self._parts.table.take_offsets(group_id)
        group = self._parts.table.others[group_id] = self._blank(group_id)
        return group

    def loaded(self, key: Message, value: Message | None, record_offset: int) -> None:
        """A record is loaded from the log, after its replay."""
        self._events.loaded(key, value, record_offset)

    def replicated(self, changes: Sequence[Change], base_offset: int) -> None:
        """Changes are replicated, in consecutive records."""
        self._events.replicated(changes, base_offset)


def _by_topic(keys: Iterable[SharePartitionKey]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for key in keys:
        found.setdefault(key.topic_id, []).append(key.partition)
    return found
