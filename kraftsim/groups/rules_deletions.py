"""Deletes offsets and groups of one `__consumer_offsets` partition: on request, with their topic,
or when they have expired.

Up to 3.9 the tombstones are not awaited: what is deleted is gone at once, and may be back with the
next coordinator. Since 4.0 a request is answered once everything that was written before is
replicated, its own tombstones included. A request that has nothing to delete waits, too: otherwise
a retry would get GROUP_ID_NOT_FOUND while the tombstone may still be lost. Until then readers
(OffsetFetch, DescribeGroups, ListGroups) see what was there before, and writers do not. A group
outlives its last offset until the next expiration (offsets.retention.check.interval.ms).
Source: kafka.coordinator.group.GroupMetadataManager.cleanupGroupMetadata (requiredAcks = 0),
org.apache.kafka.coordinator.group.{GroupCoordinatorService.{deleteGroups, deleteOffsets},
GroupCoordinatorShard.cleanupGroupMetadata}, CoordinatorRuntime.scheduleWriteOperation.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

from kraftsim.groups.rules_classic_group import CONSUMER_PROTOCOL, ClassicGroup, GroupState
from kraftsim.groups.rules_consumer_group import ConsumerGroup
from kraftsim.groups.rules_consumer_group_records import (
    Change,
    group_tombstone,
    group_tombstones,
    offset_tombstone,
)
from kraftsim.groups.rules_group_table import Group, GroupTable, OtherGroup
from kraftsim.groups.rules_offsets import (
    CommittedOffset,
    CoordinatorRecord,
    OffsetEvents,
    Offsets,
    Outbox,
    RemovalReason,
    Stored,
    TopicPartition,
    coordinator_record,
)
from kraftsim.groups.rules_timing import DeletionAnswer, GroupMoment, GroupSettings
from protocol.errors import ErrorCode

OnDeleted = Callable[[ErrorCode], None]
REQUESTED, EXPIRED = RemovalReason.REQUESTED, RemovalReason.EXPIRED
NO_OFFSETS: Mapping[TopicPartition, CommittedOffset] = {}


@dataclass(slots=True, eq=False)
class Deletion:
    """What is deleted of one group: tombstones, and what readers see until they are replicated.

    `group` is the group as it was; None if only offsets are deleted.
    """

    group_id: str
    records: list[CoordinatorRecord]
    offsets: Offsets
    group: Group | None = None


class Deletions:
    """Deletions in the groups of all types, by name."""

    def __init__(
        self,
        settings: GroupSettings,
        outbox: Outbox,
        events: OffsetEvents,
        table: GroupTable,
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._events = events
        self._table = table
        self._unreplicated: dict[str, list[Deletion]] = {}
        """By group: its deletions whose tombstones are not replicated yet, the oldest first."""

    # What readers see
    # ----------------------------------------------------------------------------------------------

    def seen_offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the deleted offsets of a group that readers still see."""
        deletions = self._unreplicated.get(group_id)
        if deletions is None:
            return NO_OFFSETS
        seen: Offsets = {}
        for deletion in reversed(deletions):
            seen.update(deletion.offsets)
        return seen

    def seen_group(self, group_id: str) -> Group | None:
        """Return a deleted group that readers still see, as it was before."""
        return next(
            (each.group for each in self._unreplicated.get(group_id, ()) if each.group is not None),
            None,
        )

    def seen_groups(self) -> Iterator[Group]:
        """Yield all of these."""
        for group_id in self._unreplicated:
            group = self.seen_group(group_id)
            if group is not None:
                yield group

    # Requests
    # ----------------------------------------------------------------------------------------------

    def delete_groups(
        self, waiter: int, group_ids: Sequence[str], now: GroupMoment, *, waits_first: bool = True
    ) -> None:
        """Delete groups without members, with their offsets; reply with an error for each.

        If the tombstones fail, every group gets that error.
        """
        looks_first = self._settings.share_groups_first and self._settings.has_coordinator_runtime
        if not (looks_first and waits_first):
            self._delete_groups(waiter, group_ids, now)
            return

        def on_settled(stored: Stored) -> None:
            if stored.is_late:
                return
            if stored.error is ErrorCode.NONE:
                self._delete_groups(waiter, group_ids, stored.now)
            else:
                errors = (stored.error,) * len(group_ids)
                self._outbox.reply(waiter, DeletionAnswer(errors))

        self._outbox.store_changes((), on_settled)

    def _delete_groups(self, waiter: int, group_ids: Sequence[str], now: GroupMoment) -> None:
        errors: list[ErrorCode] = []
        deletions: list[Deletion] = []
        for group_id in group_ids:
            group = self._find(group_id)
            if group is None:
                errors.append(ErrorCode.GROUP_ID_NOT_FOUND)
            elif not _is_empty(group):
                errors.append(ErrorCode.NON_EMPTY_GROUP)
            else:
                errors.append(ErrorCode.NONE)
                known = group.offsets.known()
                deletions.append(self._delete(group, known, now, REQUESTED, is_whole_group=True))

        def reply(error: ErrorCode) -> None:
            given = errors if error is ErrorCode.NONE else [error] * len(errors)
            self._outbox.reply(waiter, DeletionAnswer(tuple(given)))

        self._write(deletions, reply)

    def delete_offsets(
        self, waiter: int, group_id: str, partitions: Sequence[TopicPartition], now: GroupMoment
    ) -> None:
        """Delete offsets of topics without subscribers; reply with an error for each partition, or
        one for the request.
        """
        group = self._find(group_id)
        if group is None:
            self._outbox.reply(waiter, DeletionAnswer((), ErrorCode.GROUP_ID_NOT_FOUND))
            return
        refusal = _refuse_offset_deletion(group)
        if refusal is not None:
            self._outbox.reply(waiter, DeletionAnswer((), refusal))
            return
        errors = tuple(
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if _reads(group, topic) else ErrorCode.NONE
            for topic, _ in partitions
        )
        wanted = [
            partition
            for partition, error in zip(partitions, errors, strict=True)
            if error is ErrorCode.NONE
        ]

        def reply(error: ErrorCode) -> None:
            self._outbox.reply(
                waiter,
                DeletionAnswer(errors) if error is ErrorCode.NONE else DeletionAnswer((), error),
            )

        self._write([self._delete(group, wanted, now, REQUESTED)], reply)

    # On the coordinator's own initiative
    # ----------------------------------------------------------------------------------------------

    def expire(self, now: GroupMoment) -> None:
        """Delete expired offsets, and groups that have neither members nor offsets (KIP-211)."""
        for group in list(self._table.all()):
            if not isinstance(group, ClassicGroup | ConsumerGroup) and not group.expires:
                continue
            expired = self._expired(group, now.wall_ms)
            self._write_if_any(self._delete(group, expired, now, EXPIRED))
            if not group.is_dead and _is_empty(group) and group.offsets.is_empty:
                self._write_if_any(self._delete(group, (), now, EXPIRED, is_whole_group=True))

    def forget_topics(self, is_there: Callable[[str], bool], now: GroupMoment) -> None:
        """Delete the offsets of deleted topics."""
        for group in list(self._table.all()):
            gone = [each for each in group.offsets.known() if not is_there(each[0])]
            self._write_if_any(self._delete(group, gone, now, RemovalReason.TOPIC_DELETED))

    def _expired(self, group: Group, now_ms: int) -> list[TopicPartition]:
        retention_ms, offsets = self._settings.offsets_retention_ms, group.offsets
        if not isinstance(group, ClassicGroup | ConsumerGroup):
            topics = dict.fromkeys(topic for topic, _ in offsets.committed)
            kept = frozenset(topic for topic in topics if group.is_subscribed_to(topic))
            return offsets.expired(now_ms, retention_ms, since_ms=None, kept_topics=kept)
        if isinstance(group, ConsumerGroup):
            kept = frozenset(
                name for member in group.members.values() for name in group.topics_of(member)
            )
            return offsets.expired(now_ms, retention_ms, since_ms=None, kept_topics=kept)
        if group.protocol_type is None:
            return offsets.expired(now_ms, retention_ms, since_ms=None, kept_topics=frozenset())
        if group.is_in(GroupState.EMPTY):
            since_ms = group.state_since_ms if group.state_since_ms >= 0 else None
            return offsets.expired(now_ms, retention_ms, since_ms=since_ms, kept_topics=frozenset())
        if group.is_in(GroupState.STABLE) and group.subscribed_topics is not None:
            return offsets.expired(
                now_ms, retention_ms, since_ms=None, kept_topics=group.subscribed_topics
            )
        return []

    # Carrying out
    # ----------------------------------------------------------------------------------------------

    def _find(self, group_id: str) -> Group | None:
        group = self._table.find(group_id)
        return None if group is None or group.is_dead else group

    def _delete(
        self,
        group: Group,
        partitions: Iterable[TopicPartition],
        now: GroupMoment,
        reason: RemovalReason,
        *,
        is_whole_group: bool = False,
    ) -> Deletion:
        """Delete offsets in memory, and the group if it is to be deleted; up to 3.9 a group without
        members goes with its last offset, since 4.0 when the expiration looks at it next.
        """
        partitions = list(partitions)
        committed = group.offsets.committed
        seen = {each: committed[each] for each in partitions if each in committed}
        former = copy(group)
        forgotten = group.offsets.forget(partitions)
        deletion = Deletion(
            group_id=group.group_id,
            records=[offset_tombstone(group.group_id, partition) for partition in forgotten],
            offsets=seen,
        )
        for partition in forgotten:
            self._events.deleted(group.group_id, partition, reason)
        if not isinstance(group, ClassicGroup):
            if is_whole_group:
                deletion.group = former
                deletion.records += [coordinator_record(*change) for change in self._ended(group)]
                self._events.removed(group.group_id, reason)
            return deletion
        is_left_over = (
            not self._settings.has_coordinator_runtime
            and group.is_in(GroupState.EMPTY)
            and group.offsets.is_empty
        )
        if is_whole_group or is_left_over:
            group.enter(GroupState.DEAD, now.wall_ms)
            del self._table.classic[group.group_id]
            self._events.removed(group.group_id, reason)
            deletion.group = former
            if group.generation_id > 0:
                deletion.records.append(group_tombstone(group.group_id))
        return deletion

    def _ended(self, group: ConsumerGroup | OtherGroup) -> list[Change]:
        """Remove a group without members in memory, and return its tombstones."""
        if isinstance(group, ConsumerGroup):
            group.is_over = True
            del self._table.consumers[group.group_id]
            return group_tombstones(group.group_id)
        del self._table.others[group.group_id]
        changes = group.tombstones()
        group.end()
        return changes

    def _write_if_any(self, deletion: Deletion) -> None:
        """Write the tombstones of a deletion that no client has asked for."""
        if deletion.records:
            self._write([deletion], lambda error: None)

    def _write(self, deletions: Sequence[Deletion], on_end: OnDeleted) -> None:
        """Append the tombstones, and call `on_end` with the result."""
        if not self._settings.has_coordinator_runtime:
            for deletion in deletions:
                if deletion.records:
                    self._outbox.write(deletion.records)
            on_end(ErrorCode.NONE)
            return
        for deletion in deletions:
            self._unreplicated.setdefault(deletion.group_id, []).append(deletion)

        def on_stored(stored: Stored) -> None:
            if stored.is_replicated:
                for deletion in deletions:
                    self._hide(deletion)
            if not stored.is_late:
                on_end(stored.error)

        self._outbox.store_changes(
            [record for deletion in deletions for record in deletion.records], on_stored
        )

    def _hide(self, deletion: Deletion) -> None:
        """The tombstones are replicated: readers do not see any longer what is deleted."""
        deletions = self._unreplicated[deletion.group_id]
        deletions.remove(deletion)
        if not deletions:
            del self._unreplicated[deletion.group_id]


def _is_empty(group: Group) -> bool:
    if isinstance(group, ClassicGroup):
        return group.is_in(GroupState.EMPTY)
    return not group.members if isinstance(group, ConsumerGroup) else group.is_empty


def _refuse_offset_deletion(group: Group) -> ErrorCode | None:
    """Return why the offsets of a group cannot be deleted: the topics of a classic group whose
    members are no consumers are unknown.
    """
    if isinstance(group, ClassicGroup):
        is_of_consumers = group.protocol_type == CONSUMER_PROTOCOL
        is_refused = not group.is_in(GroupState.EMPTY) and not is_of_consumers
        return ErrorCode.NON_EMPTY_GROUP if is_refused else None
    return None if isinstance(group, ConsumerGroup) else group.refuse_offset_deletion()


def _reads(group: Group, topic: str) -> bool:
    """Return whether a group is subscribed to a topic, or may be."""
    if not isinstance(group, ClassicGroup):
        return group.is_subscribed_to(topic)
    if group.is_in(GroupState.EMPTY):
        return False
    return group.subscribed_topics is None or topic in group.subscribed_topics
