"""The groups of one `__consumer_offsets` partition, of all types: routes each request to its rules,
and loads the groups from the log.

Every input has the time at which it arrives, and returns its effects, in order; some return a value
as well. `timers.next_ms` is when `on_wake` is due.
Source: kafka.coordinator.group.{GroupCoordinator, GroupMetadataManager}.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.groups.rules_classic_group import ClassicGroup, GroupState
from kraftsim.groups.rules_classic_members import ClassicMembers
from kraftsim.groups.rules_committing import (
    Committing,
    OffsetCommitInput,
    TransactionalCommitInput,
    TransactionalCommitting,
)
from kraftsim.groups.rules_consumer_group import (
    FIRST_COMMIT_WITH_EPOCHS,
    ConsumerGroup,
    NoTopics,
    TopicsView,
)
from kraftsim.groups.rules_consumer_group_records import KEYS as CONSUMER_KEYS
from kraftsim.groups.rules_consumer_group_records import (
    Change,
    MemberEvents,
    group_tombstones,
    group_value,
    read_offset,
    replay_change,
)
from kraftsim.groups.rules_consumer_groups import (
    ConsumerGroups,
    HeartbeatInput,
    classic_of,
    consumer_changes,
    members_of_classic,
    tombstones_of,
)
from kraftsim.groups.rules_deletions import Deletions
from kraftsim.groups.rules_group_table import Group, GroupTable, OtherGroup
from kraftsim.groups.rules_offsets import (
    OF_CHANGES,
    OF_OFFSETS,
    CommittedOffset,
    Effect,
    GroupOffsets,
    OffsetEvents,
    OffsetHolder,
    Outbox,
    Stored,
    TopicPartition,
    discard,
)
from kraftsim.groups.rules_other_groups import OtherGroups, ShardParts
from kraftsim.groups.rules_rebalance import Joining, JoinInput, Membership, Rebalance, SyncInput
from kraftsim.groups.rules_timing import (
    CommitAnswer,
    GroupAnswer,
    GroupMoment,
    GroupSettings,
    JoinAnswer,
    SyncAnswer,
    TimerKind,
    Timers,
)
from protocol.coordinator.consumer_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch
from protocol.records.control_records import ControlType, control_type
from protocol.schema import Message, declaration_of

OLDEST_COMMIT: Final = 0
SHARE_RECORDS: Final = range(10, 16)
"""The record types of share groups."""
STREAMS_RECORDS: Final = (17, 19, 20, 21, 22, 23)
"""The types of the records of streams groups."""
OfType = TypeVar("OfType", bound=OtherGroups)


def type_of_record(key: Message) -> type[OtherGroups] | None:
    """Return the type of groups that has records of this kind; None for an unknown one.

    Imported when the first such record is read: most nodes have none.
    """
    match declaration_of(type(key)).api_key:
        case number if number in SHARE_RECORDS:
            from kraftsim.groups.rules_share_groups import ShareGroups

            return ShareGroups
        case number if number in STREAMS_RECORDS:
            from kraftsim.groups.rules_streams_groups import StreamsGroups

            return StreamsGroups
        case _:
            return None


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """OffsetFetch result of a partition; `offset` is None if none is committed or an error
    withholds it.
    """

    partition: TopicPartition
    offset: CommittedOffset | None
    error: ErrorCode = ErrorCode.NONE


class GroupShard:
    """Groups by name, in order of creation. `number` is the partition."""

    offsets_class: type[GroupOffsets] = GroupOffsets
    """The class that stores the offsets of each group."""
    transactional_committing_class: type[TransactionalCommitting] = TransactionalCommitting
    """The class that validates and appends transactional commits."""

    def __init__(
        self,
        settings: GroupSettings,
        number: int = 0,
        emit: Callable[[Event], None] = discard,
        topics: TopicsView | None = None,
    ) -> None:
        self.number = number
        self._events = events = OffsetEvents(emit, number)
        self._table = table = GroupTable(self.offsets_class)
        self.groups: dict[str, ClassicGroup] = table.classic
        self.consumer_groups: dict[str, ConsumerGroup] = table.consumers
        """Groups of the consumer protocol (KIP-848)."""
        self.other_groups: dict[str, OtherGroup] = table.others
        """Groups of all other types."""
        self._others: dict[str, OtherGroups] = {}
        """By type name: the rules of each other type that this shard has met."""
        self._emit = emit
        self._outbox = Outbox(OF_CHANGES if settings.has_coordinator_runtime else OF_OFFSETS)
        """What the parts of the shard have to do for the present input; empty between inputs."""
        self.timers = Timers()
        self._settings = settings
        self._topics: TopicsView = topics or NoTopics()
        self._member_events = MemberEvents(emit, number, self._topics)
        self._rebalance = Rebalance(settings, self._outbox, self.timers)
        self._joining = Joining(settings, self._outbox, self.timers, self._rebalance)
        self._membership = Membership(self._outbox, self.timers, self._rebalance)
        self._committing = Committing(settings, self._outbox, self._rebalance, events, self._topics)
        self._transactional = self.transactional_committing_class(
            settings, self._outbox, events, self._topics
        )
        self._consumers = ConsumerGroups(
            settings,
            self._outbox,
            self.timers,
            self._topics,
            self._member_events,
            groups=self.consumer_groups,
            apply=lambda change: self._replay_change(*change),
            admit=self._create_consumers,
            to_classic=self._downgrade,
        )
        self._deletions = Deletions(settings, self._outbox, events, table)
        self._classic_members = ClassicMembers(
            settings, self._outbox, self.timers, self._topics, self._consumers, self._to_classic
        )

    @property
    def has_coordinator_runtime(self) -> bool:
        """Whether groups are written as by CoordinatorRuntime."""
        return self._settings.has_coordinator_runtime

    def find(self, group_id: str) -> Group | None:
        """Return a group of any type."""
        return self._table.find(group_id)

    def all(self) -> Iterator[Group]:
        """Yield the groups of all types."""
        return self._table.all()

    def of_type(self, kind: type[OfType]) -> OfType:
        """Return the rules of another type of groups, made when they are first needed."""
        made = self._others.get(kind.name)
        if made is None:
            made = self._others[kind.name] = kind(self._parts())
        assert isinstance(made, kind), f"{kind.name} names one class"
        return made

    def ask_type(self, kind: type[OfType], ask: Callable[[OfType], None]) -> list[Effect]:
        """Pass an input to the rules of another type of groups."""
        ask(self.of_type(kind))
        return self._outbox.take()

    def _parts(self) -> ShardParts:
        return ShardParts(
            number=self.number,
            settings=self._settings,
            outbox=self._outbox,
            timers=self.timers,
            topics=self._topics,
            emit=self._emit,
            table=self._table,
        )

    def seen(self, group_id: str) -> Group | None:
        """Return a group as readers see it: until its tombstone is replicated, as it was before."""
        return self._deletions.seen_group(group_id) or self.find(group_id)

    def all_seen(self) -> Iterator[Group]:
        """Yield the groups that readers see."""
        deleted = {group.group_id: group for group in self._deletions.seen_groups()}
        yield from deleted.values()
        yield from (group for group in self.all() if group.group_id not in deleted)

    # Members
    # ----------------------------------------------------------------------------------------------

    def join(self, waiter: int, asked: JoinInput, now: GroupMoment) -> list[Effect]:
        """Reply with a JoinAnswer, usually later.

        A join without member id creates the group if it does not exist.
        """
        if (
            not self._settings.min_session_timeout_ms
            <= asked.session_timeout_ms
            <= self._settings.max_session_timeout_ms
        ):
            return self._answered(
                waiter,
                JoinAnswer(error=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=asked.member_id),
            )
        group = self.groups.get(asked.group_id)
        if group is None:
            consumers = self.consumer_groups.get(asked.group_id)
            if consumers is not None and consumers.members:
                self._classic_members.join(consumers, waiter, asked, now)
                return self._outbox.take()
            other = self.other_groups.get(asked.group_id)
            if other is not None and not other.gives_way:
                return self._answered(
                    waiter, JoinAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
                )
            if asked.member_id:
                return self._answered(
                    waiter, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=asked.member_id)
                )
            former = consumers or other
            group = (
                self._table.add_classic(asked.group_id, now.wall_ms)
                if former is None
                else self._create_classic(former, now)
            )
        self._joining.join(group, waiter, asked, now)
        return self._outbox.take()

    def sync(self, waiter: int, asked: SyncInput, now: GroupMoment) -> list[Effect]:
        """Reply with a SyncAnswer, usually later."""
        consumers = self.consumer_groups.get(asked.group_id)
        if consumers is not None:
            self._classic_members.sync(consumers, waiter, asked, now)
            return self._outbox.take()
        group = self.groups.get(asked.group_id)
        if group is None:
            return self._answered(waiter, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
        self._membership.sync(group, waiter, asked, now)
        return self._outbox.take()

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        now: GroupMoment,
    ) -> tuple[ErrorCode, list[Effect]]:
        """Renew a session, and return the state of the group as an error code."""
        consumers = self.consumer_groups.get(group_id)
        group = self.groups.get(group_id)
        if consumers is not None:
            error = self._classic_members.heartbeat(
                consumers, member_id, group_instance_id, generation_id, now
            )
        elif group is not None:
            error = self._membership.heartbeat(
                group, member_id, group_instance_id, generation_id, now
            )
        else:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        return error, self._outbox.take()

    def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]], now: GroupMoment
    ) -> tuple[list[ErrorCode] | ErrorCode, list[Effect]]:
        """Remove members, by id and instance id; return one error each, or one for the request."""
        consumers = self.consumer_groups.get(group_id)
        group = self.groups.get(group_id)
        errors: list[ErrorCode] | ErrorCode
        if consumers is not None:
            errors = self._classic_members.leave(consumers, members, now)
        elif group is None:
            errors = [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        elif group.is_in(GroupState.DEAD):
            errors = ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            errors = [
                self._membership.leave(group, member_id, instance_id, now)
                for member_id, instance_id in members
            ]
        return errors, self._outbox.take()

    def consumer_heartbeat(
        self, waiter: int, asked: HeartbeatInput, now: GroupMoment
    ) -> list[Effect]:
        """Reply with a HeartbeatAnswer (KIP-848).

        A join creates the group if it does not exist, or converts a classic one.
        """
        self._consumers.heartbeat(waiter, asked, now)
        return self._outbox.take()

    def _answered(self, waiter: int, answer: GroupAnswer) -> list[Effect]:
        self._outbox.reply(waiter, answer)
        return self._outbox.take()

    def _create_consumers(self, group_id: str, now: GroupMoment) -> list[Change] | Refusal:
        """Create a consumer group, or convert a classic one with its offsets and members."""
        if group_id in self.other_groups:
            return Refusal(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        classic = self.groups.get(group_id)
        changes: list[Change] = []
        if classic is not None:
            if not classic.is_in(GroupState.EMPTY):
                return self._upgrade(classic, now)
            changes.append((GroupMetadataKey(group=group_id), None))
        self._make_consumers(group_id).group_epoch = self._settings.consumer_first_epoch
        return changes

    def _upgrade(self, classic: ClassicGroup, now: GroupMoment) -> list[Change] | Refusal:
        """Convert a classic group with members, which stay in it; pending requests get an error so
        that their members rejoin.
        """
        may_upgrade = (
            self._settings.upgrades_groups
            and len(classic.members) <= self._settings.consumer_max_size
        )
        members = members_of_classic(classic, self._topics) if may_upgrade else None
        if members is None:
            return Refusal(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {classic.group_id} is not a consumer group."
            )
        self._rebalance.forget(classic)
        changes = consumer_changes(
            classic,
            members,
            self._topics,
            with_epochs=self._settings.consumer_keeps_assignment_epochs,
        )
        self._make_consumers(classic.group_id)
        for change in changes:
            self._replay_change(*change)
        for member in members:
            self._consumers.renew(classic.group_id, member, now)
        return changes

    def _downgrade(self, consumers: ConsumerGroup, now: GroupMoment) -> list[Change]:
        """Convert a consumer group to a classic one whose members have to rejoin."""
        changes = self._to_classic(consumers, now)
        self._rebalance.prepare(self.groups[consumers.group_id], now)
        return changes

    def _to_classic(self, consumers: ConsumerGroup, now: GroupMoment) -> list[Change]:
        """Convert a consumer group whose members all use the classic protocol; each one is assigned
        its target.
        """
        classic = classic_of(consumers, self._topics, now.wall_ms)
        shares = {member.member_id: member.assignment for member in classic.members.values()}
        changes = [
            *tombstones_of(consumers),
            (GroupMetadataKey(group=classic.group_id), group_value(classic, shares)),
        ]
        del self.consumer_groups[consumers.group_id]
        self.groups[classic.group_id] = classic
        for member in classic.members.values():
            self._consumers.forget_timers(classic.group_id, member.member_id)
            self._rebalance.renew_session(member, now)
        return changes

    def _create_classic(self, former: ConsumerGroup | OtherGroup, now: GroupMoment) -> ClassicGroup:
        """Create a classic group from a group of another type without members."""
        group_id = former.group_id
        changes = (
            group_tombstones(group_id) if isinstance(former, ConsumerGroup) else former.tombstones()
        )
        for change in changes:
            self._replay_change(*change)
        self._consumers.write(changes, lambda error: None)
        return self.groups.get(group_id) or self._table.add_classic(group_id, now.wall_ms)

    # Offsets
    # ----------------------------------------------------------------------------------------------

    def commit(
        self,
        waiter: int,
        asked: OffsetCommitInput,
        now: GroupMoment,
        api_version: int = OLDEST_COMMIT,
    ) -> list[Effect]:
        """Reply with a CommitAnswer once the offsets are replicated.

        An unknown group is created for a committer that is not a member.
        """
        modern = self._table.modern(asked.group_id)
        if modern is not None:
            self._committing.commit_of_epoch(modern, waiter, asked, api_version, now)
            return self._outbox.take()
        group = self.groups.get(asked.group_id)
        if group is None:
            if asked.generation_id >= 0:
                knows_epochs = (
                    not self._settings.makes_group_unjudged
                    and api_version >= FIRST_COMMIT_WITH_EPOCHS
                )
                unknown = (
                    ErrorCode.GROUP_ID_NOT_FOUND if knows_epochs else ErrorCode.ILLEGAL_GENERATION
                )
                return self._answered(waiter, CommitAnswer((unknown,) * len(asked.offsets)))
            group = self._table.add_classic(asked.group_id, now.wall_ms)
        self._committing.commit(group, waiter, asked, now)
        return self._outbox.take()

    def commit_in_transaction(
        self, waiter: int, asked: TransactionalCommitInput, now: GroupMoment
    ) -> list[Effect]:
        """Reply with a CommitAnswer once the offsets are replicated: validate and append in one
        step.

        An unknown group is created.
        """
        group = self._group_of_transaction(asked, now)
        if isinstance(group, ErrorCode):
            return self._answered(waiter, CommitAnswer((group,) * len(asked.offsets)))
        self._transactional.commit(group, waiter, asked, now)
        return self._outbox.take()

    def refuse_in_transaction(
        self, asked: TransactionalCommitInput, now: GroupMoment
    ) -> ErrorCode | None:
        """Return the error that a transactional commit would have now, without writing."""
        group = self._group_of_transaction(asked, now)
        return group if isinstance(group, ErrorCode) else self._transactional.refuse(group, asked)

    def _group_of_transaction(
        self, asked: TransactionalCommitInput, now: GroupMoment
    ) -> Group | ErrorCode:
        """Return the group of a transactional commit.

        Up to 3.9 an unknown group is created even if the commit is then refused.
        """
        group = self.find(asked.group_id)
        if group is None and asked.generation_id >= 0 and not self._settings.makes_group_unjudged:
            return (
                ErrorCode.GROUP_ID_NOT_FOUND if asked.knows_epochs else ErrorCode.ILLEGAL_GENERATION
            )
        return group or self._table.add_classic(asked.group_id, now.wall_ms)

    def end_transaction(
        self, producer_id: int, producer_epoch: int, marker_offset: int, *, is_commit: bool
    ) -> None:
        """The marker of a producer's transaction is replicated: make its pending offsets visible,
        or drop them.
        """
        for group in self.all():
            for ended in group.offsets.end_transaction(
                producer_id, marker_offset, is_commit=is_commit
            ):
                self._events.ended(
                    group.group_id,
                    ended,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    marker_offset=marker_offset,
                    is_commit=is_commit,
                )

    def refuse_fetch(
        self, group_id: str, member_id: str | None, member_epoch: int
    ) -> ErrorCode | None:
        """Return the error of an offset fetch for a consumer group: UNKNOWN_MEMBER_ID,
        STALE_MEMBER_EPOCH (KIP-848).
        """
        modern = self._table.modern(group_id)
        return None if modern is None else modern.refuse_fetch(member_id, member_epoch)

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool
    ) -> list[FoundOffset]:
        """Return the committed offsets of partitions, or (None) of all partitions that have one."""
        group = self.find(group_id)
        deleted = self._deletions.seen_offsets(group_id)
        if group is None or group.is_dead:
            return [
                FoundOffset(partition, deleted.get(partition))
                for partition in (deleted if partitions is None else partitions)
            ]
        committed = group.offsets.committed
        seen = {**committed, **deleted} if deleted else committed
        found = [
            FoundOffset(partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if self.withholds(group, partition, require_stable=require_stable)
            else FoundOffset(partition, seen.get(partition))
            for partition in (list(seen) if partitions is None else partitions)
        ]
        for each in found:
            if each.partition in deleted:
                continue  # whether it is deleted is not decided before its tombstone is replicated
            self._events.returned(
                group_id, each.partition, each.offset, each.error, require_stable=require_stable
            )
        return found

    def withholds(
        self, group: OffsetHolder, partition: TopicPartition, *, require_stable: bool
    ) -> bool:
        """Return whether an unstable offset is withheld (KIP-447); without `require_stable` the
        former offset is returned.
        """
        return require_stable and group.offsets.is_unstable(partition)

    # Deletions
    # ----------------------------------------------------------------------------------------------

    def delete_offsets(
        self, waiter: int, group_id: str, partitions: Sequence[TopicPartition], now: GroupMoment
    ) -> list[Effect]:
        """Reply with a DeletionAnswer (OffsetDelete)."""
        self._deletions.delete_offsets(waiter, group_id, partitions, now)
        return self._outbox.take()

    def delete_groups(
        self,
        waiter: int,
        group_ids: Sequence[str],
        now: GroupMoment,
        *,
        waits_first: bool = True,
    ) -> list[Effect]:
        """Reply with a DeletionAnswer (DeleteGroups); `waits_first` is False if the states of share
        groups are deleted already.
        """
        self._deletions.delete_groups(waiter, group_ids, now, waits_first=waits_first)
        return self._outbox.take()

    def expire_offsets(self, now: GroupMoment) -> list[Effect]:
        """Delete expired offsets, and groups that have neither members nor offsets (KIP-211)."""
        self._deletions.expire(now)
        return self._outbox.take()

    def forget_topics(self, is_there: Callable[[str], bool], now: GroupMoment) -> list[Effect]:
        """Delete the offsets of deleted topics."""
        self._deletions.forget_topics(is_there, now)
        for others in self._others.values():
            others.forget_topics(now)
        return self._outbox.take()

    # Timers
    # ----------------------------------------------------------------------------------------------

    def on_wake(self, now: GroupMoment) -> list[Effect]:
        """Run every expired timer."""
        while (key := self.timers.take_due(now.monotonic_ms)) is not None:
            match key.kind:
                case TimerKind.CONSUMER_SESSION | TimerKind.CONSUMER_JOIN | TimerKind.CONSUMER_SYNC:
                    self._consumers.remove(key.group_id, key.member_id, now)
                case TimerKind.CONSUMER_REVOCATION:
                    self._consumers.on_revocation_end(key.group_id, key.member_id, now)
            other = self.other_groups.get(key.group_id)
            if other is not None:
                self._others[other.type_name].on_timer(key, now)
            group = self.groups.get(key.group_id)
            if group is None:
                continue
            match key.kind:
                case TimerKind.SESSION:
                    self._rebalance.on_session_end(group, key.member_id, now)
                case TimerKind.PENDING_MEMBER:
                    self._rebalance.remove_pending(group, key.member_id, now)
                case TimerKind.REBALANCE:
                    self._rebalance.on_deadline(group, now)
                case TimerKind.SYNC:
                    self._rebalance.on_sync_deadline(group, now)
        return self._outbox.take()

    # Appends
    # ----------------------------------------------------------------------------------------------

    def on_stored(self, token: int, stored: Stored) -> list[Effect]:
        """Continue after an append; see `Outbox.stored`."""
        self._outbox.stored(token, stored)
        return self._outbox.take()

    def is_awaited(self, token: int) -> bool:
        """Return whether the result of an append is still awaited."""
        return self._outbox.is_awaited(token)

    # Load and unload
    # ----------------------------------------------------------------------------------------------

    def replay(self, batch: RecordBatch) -> None:
        """Replay a batch of the log.

        Raises MalformedMessage. Transactional offsets become visible with their marker.
        """
        if batch.is_control:
            for record in batch.records():
                for group in self.all():
                    group.offsets.end_transaction(
                        batch.producer_id,
                        record.offset,
                        is_commit=control_type(record.key) is ControlType.COMMIT,
                    )
            return
        for record in batch.records():
            parsed = (
                None
                if record.key is None
                else parse_record(CoordinatorTopic.CONSUMER_OFFSETS, record.key, record.value)
            )
            match parsed:
                case (OffsetCommitKey() as key, value):
                    assert value is None or isinstance(value, OffsetCommitValue), (
                        "the value type matches the key type"
                    )
                    self._replay_offset(
                        key,
                        value,
                        record.offset,
                        batch.producer_id if batch.is_transactional else None,
                    )
                case (GroupMetadataKey() as key, value):
                    assert value is None or isinstance(value, GroupMetadataValue), (
                        "the value type matches the key type"
                    )
                    self._table.replay_classic(key.group, value)
                case (key, value) if isinstance(key, CONSUMER_KEYS):
                    self._replay_change(key, value)
                    self._member_events.replayed(key, value, record.offset)
                case (key, value) if (kind := type_of_record(key)) is not None:
                    others = self.of_type(kind)
                    others.replay(key, value)
                    others.loaded(key, value, record.offset)

    def _replay_change(self, key: Message, value: Message | None) -> None:
        """Replay a record of a group of any type but classic, or of a classic one that is
        converted.
        """
        if isinstance(key, GroupMetadataKey):
            return  # its tombstone: the group is already converted
        if not isinstance(key, CONSUMER_KEYS):
            kind = type_of_record(key)
            assert kind is not None, "a record of this shard's groups"
            self.of_type(kind).replay(key, value)
            return
        replay_change(
            key,
            value,
            find=self.consumer_groups.get,
            make=self._make_consumers,
            drop=self._drop_consumers,
        )

    def _make_consumers(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group; a new one keeps the offsets of a classic one."""
        group = self.consumer_groups.get(group_id)
        if group is None:
            keeps = self._settings.consumer_keeps_assignment_epochs
            offsets = self._table.take_offsets(group_id)
            group = self.consumer_groups[group_id] = ConsumerGroup(
                group_id, keeps_assignment_epochs=keeps
            )
            group.offsets = offsets
        return group

    def _drop_consumers(self, group_id: str) -> None:
        """Remove a consumer group."""
        self._table.give_offsets(group_id, self.consumer_groups.pop(group_id).offsets)

    def _replay_offset(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        record_offset: int,
        producer_id: int | None,
    ) -> None:
        partition = (key.topic, key.partition)
        group = self.find(key.group)
        if value is None:
            if group is not None:
                group.offsets.forget([partition])
            return
        if group is None:
            group = self._table.add_classic(key.group)
        stored = read_offset(value, record_offset)
        if producer_id is None:
            group.offsets.replay(partition, stored)
        else:
            group.offsets.replay_pending(producer_id, partition, stored)

    def begin(self, now: GroupMoment) -> list[Effect]:
        """The log is replayed: start full sessions for all members, and remove empty groups."""
        for group in list(self.groups.values()):
            if not group.members and group.offsets.is_empty and group.generation_id == 0:
                del self.groups[group.group_id]
                continue
            self._emit_loaded(group)
            for member in group.members.values():
                self._rebalance.renew_session(member, now)
            if len(group.members) > self._settings.max_size:
                self._rebalance.prepare(group, now)
        for consumers in (*self.consumer_groups.values(), *self.other_groups.values()):
            self._emit_loaded(consumers)
        self._member_events.begin()
        self._consumers.begin(now)
        for others in self._others.values():
            others.begin(now)
        return self._outbox.take()

    def _emit_loaded(self, group: OffsetHolder) -> None:
        for partition, stored in group.offsets.committed.items():
            self._events.loaded(group.group_id, partition, stored)
        for producer_id, offsets in group.offsets.pending.items():
            for partition, stored in offsets.items():
                self._events.loaded(group.group_id, partition, stored, producer_id)

    def end(self, now: GroupMoment) -> list[Effect]:
        """Another broker becomes coordinator of these groups: fail the pending requests."""
        for group in self.groups.values():
            for member in group.members.values():
                self._rebalance.answer_join(
                    member, JoinAnswer(error=ErrorCode.NOT_COORDINATOR, member_id=member.member_id)
                )
                self._rebalance.answer_sync(member, SyncAnswer(error=ErrorCode.NOT_COORDINATOR))
            group.enter(GroupState.DEAD, now.wall_ms)
        for consumers in self.consumer_groups.values():
            consumers.is_over = True
        for other in self.other_groups.values():
            other.end()
        self._table.clear()
        return self._outbox.take()
