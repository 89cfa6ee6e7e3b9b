"""Offset commits, outside of transactions and inside: validation of the committer, and the states
of a commit (pending, appended, replicated, visible).

Both validate the group and append in one step. A plain commit becomes visible once it is
replicated; one in a transaction when the marker of the transaction is.
Source: kafka.coordinator.group.GroupCoordinator.{handleCommitOffsets, doTxnCommitOffsets,
validateOffsetCommit}, GroupMetadataManager.storeOffsets; KIP-98, KIP-447.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from kraftsim.groups.rules_classic_group import ClassicGroup, GroupState
from kraftsim.groups.rules_consumer_group import ConsumerGroup, TopicsView
from kraftsim.groups.rules_consumer_group_records import offset_record
from kraftsim.groups.rules_group_table import OtherGroup
from kraftsim.groups.rules_offsets import (
    NO_EXPIRY,
    CommittedOffset,
    CoordinatorRecord,
    OffsetEvents,
    OffsetHolder,
    Outbox,
    Stored,
    TopicPartition,
    WritingProducer,
)
from kraftsim.groups.rules_rebalance import Rebalance
from kraftsim.groups.rules_timing import CommitAnswer, GroupMoment, GroupSettings
from protocol.errors import ErrorCode

NO_RETENTION_MS: Final = -1


# --------------------------------------------------------------------------------------------------
# OffsetCommit


class OffsetToCommit(Struct, frozen=True, kw_only=True):
    """One offset to commit; a timestamp of -1 is the time of arrival."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int = -1


class OffsetCommitInput(Struct, frozen=True, kw_only=True):
    """An offset commit request.

    `generation_id` is negative and `member_id` empty if the committer is not a member.
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    retention_ms: int
    offsets: Sequence[OffsetToCommit]


class Committing:
    """Validation and append of offset commits for the groups of one coordinator partition."""

    def __init__(
        self,
        settings: GroupSettings,
        outbox: Outbox,
        rebalance: Rebalance,
        events: OffsetEvents,
        topics: TopicsView,
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._rebalance = rebalance
        self._events = events
        self._topics = topics

    def commit(
        self, group: ClassicGroup, waiter: int, asked: OffsetCommitInput, now: GroupMoment
    ) -> None:
        """Commit offsets, or reply with an error. A commit renews the member's session."""
        error = self._refuse(group, asked)
        if error is None and group.is_in(GroupState.COMPLETING_REBALANCE):
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not None:
            self._outbox.reply(waiter, CommitAnswer((error,) * len(asked.offsets)))
            return
        if group.is_in(GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._rebalance.renew_session(group.members[asked.member_id], now)
        self._store(group, waiter, asked, now)

    def _refuse(self, group: ClassicGroup, asked: OffsetCommitInput) -> ErrorCode | None:
        if group.is_in(GroupState.DEAD):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if asked.generation_id < 0 and group.is_in(GroupState.EMPTY):
            return (
                None  # an admin client, or a consumer that is not a group member (simple consumer)
            )
        if asked.generation_id < 0 and not asked.member_id and asked.group_instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.validate_member(asked.member_id, asked.group_instance_id)
        if error is not None:
            return error
        return None if asked.generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION

    def commit_of_epoch(
        self,
        group: ConsumerGroup | OtherGroup,
        waiter: int,
        asked: OffsetCommitInput,
        api_version: int,
        now: GroupMoment,
    ) -> None:
        """Commit offsets of a consumer group member, which sends its member epoch, or reply with an
        error.
        """
        partitions = by_topic_id(asked.offsets, self._topics, self._settings)
        error = group.refuse_commit(asked.member_id, asked.generation_id, api_version, partitions)
        if error is not None:
            self._outbox.reply(waiter, CommitAnswer((error,) * len(asked.offsets)))
            return
        self._store(group, waiter, asked, now)

    def _store(
        self, group: OffsetHolder, waiter: int, asked: OffsetCommitInput, now: GroupMoment
    ) -> None:
        errors: list[ErrorCode] = []
        sent: list[tuple[TopicPartition, CommittedOffset]] = []
        for each in asked.offsets:
            if len(each.metadata) > self._settings.offset_metadata_max_bytes:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            sent.append(((each.topic, each.partition), offset_of(each, now, asked.retention_ms)))
        if not sent:
            self._outbox.reply(waiter, CommitAnswer(tuple(errors)))
            return
        records: list[CoordinatorRecord] = []
        for partition, offset in sent:
            group.offsets.send(partition, offset)
            records.append(offset_record(group.group_id, partition, offset))

        def on_stored(stored: Stored) -> None:
            for index, (partition, offset) in enumerate(sent):
                if group.is_dead:
                    break
                if not stored.is_replicated:
                    if not stored.may_follow:
                        group.offsets.fail(partition, offset)
                    continue
                placed = placed_at(offset, stored.base_offset + index)
                is_current = group.offsets.commit(partition, offset, placed)
                self._events.committed(
                    group.group_id,
                    partition,
                    placed,
                    member_id=asked.member_id,
                    generation_id=asked.generation_id,
                    is_current=is_current,
                )
            if not stored.is_late:
                answers = [stored.error if error is ErrorCode.NONE else error for error in errors]
                self._outbox.reply(waiter, CommitAnswer(tuple(answers)))

        self._outbox.store_offsets(records, on_stored)


def by_topic_id(
    asked: Sequence[OffsetToCommit], topics: TopicsView, settings: GroupSettings
) -> Iterator[tuple[bytes, int]]:
    """Yield the partitions of a commit whose metadata is within the size limit, by topic id; the id
    is None if the topic does not exist.
    """
    for each in asked:
        if len(each.metadata) <= settings.offset_metadata_max_bytes:
            found = topics.find(each.topic)
            yield (b"" if found is None else found[0], each.partition)


def offset_of(
    asked: OffsetToCommit, now: GroupMoment, retention_ms: int = NO_RETENTION_MS
) -> CommittedOffset:
    """Return the committed offset, without its position in the log."""
    return CommittedOffset(
        offset=asked.offset,
        leader_epoch=asked.leader_epoch,
        metadata=asked.metadata,
        commit_timestamp=now.wall_ms if asked.commit_timestamp < 0 else asked.commit_timestamp,
        expire_timestamp=NO_EXPIRY
        if retention_ms == NO_RETENTION_MS
        else now.wall_ms + retention_ms,
    )


def placed_at(offset: CommittedOffset, record_offset: int) -> CommittedOffset:
    """Return a committed offset with the offset of its record."""
    return CommittedOffset(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp,
        expire_timestamp=offset.expire_timestamp,
        record_offset=record_offset,
    )


# --------------------------------------------------------------------------------------------------
# TxnOffsetCommit
#
# The transaction coordinator has verified the transaction before, and the log validates the
# producer; only the group is validated here. Were validation and append two steps, a rebalance in
# between would accept offsets of a member that has lost its partitions (KAFKA-15784). A request
# without a member id is not fenced: an old client, or a producer whose consumer has no group.


class TransactionalCommitInput(Struct, frozen=True, kw_only=True):
    """A TxnOffsetCommit request.

    `generation_id` is negative and `member_id` empty if the client sends no member.
    """

    transactional_id: str
    group_id: str
    producer: WritingProducer
    generation_id: int
    member_id: str
    group_instance_id: str | None
    offsets: Sequence[OffsetToCommit]
    knows_epochs: bool = False
    """Whether the client knows STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND (version 6)."""


class TransactionalCommitting:
    """Validation and append of transactional commits for the groups of one coordinator
    partition.
    """

    def __init__(
        self, settings: GroupSettings, outbox: Outbox, events: OffsetEvents, topics: TopicsView
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._events = events
        self._topics = topics

    def commit(
        self,
        group: ClassicGroup | ConsumerGroup | OtherGroup,
        waiter: int,
        asked: TransactionalCommitInput,
        now: GroupMoment,
    ) -> None:
        """Commit offsets, or reply with an error. The session of a member is not renewed."""
        error = self.refuse(group, asked)
        if error is not None:
            self._outbox.reply(waiter, CommitAnswer((error,) * len(asked.offsets)))
            return
        self._store(group, waiter, asked, now)

    def refuse(
        self, group: ClassicGroup | ConsumerGroup | OtherGroup, asked: TransactionalCommitInput
    ) -> ErrorCode | None:
        """Return the error of a commit.

        A member of a consumer group sends its member epoch; a stale one is ILLEGAL_GENERATION, too.

        Returns COORDINATOR_NOT_AVAILABLE, FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID or
        ILLEGAL_GENERATION. A rebalance in progress refuses no commit: a member that has to rejoin
        may still commit what it has read.
        """
        if not isinstance(group, ClassicGroup):
            partitions = by_topic_id(asked.offsets, self._topics, self._settings)
            stale = group.refuse_commit(asked.member_id, asked.generation_id, None, partitions)
            return (
                ErrorCode.ILLEGAL_GENERATION
                if stale is ErrorCode.STALE_MEMBER_EPOCH and not asked.knows_epochs
                else stale
            )
        if group.is_in(GroupState.DEAD):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if asked.generation_id < 0 and (
            group.is_in(GroupState.EMPTY)
            or (not asked.member_id and asked.group_instance_id is None)
        ):
            return None
        error = group.validate_member(asked.member_id, asked.group_instance_id)
        if error is not None:
            return error
        return None if asked.generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION

    def _store(
        self, group: OffsetHolder, waiter: int, asked: TransactionalCommitInput, now: GroupMoment
    ) -> None:
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        errors = [
            too_large
            if len(each.metadata) > self._settings.offset_metadata_max_bytes
            else ErrorCode.NONE
            for each in asked.offsets
        ]
        sent: list[tuple[TopicPartition, CommittedOffset]] = [
            ((each.topic, each.partition), offset_of(each, now))
            for each, error in zip(asked.offsets, errors, strict=True)
            if error is ErrorCode.NONE
        ]
        if not sent:
            self._outbox.reply(waiter, CommitAnswer(tuple(errors)))
            return
        producer_id = asked.producer.producer_id
        for partition, offset in sent:
            group.offsets.send_of_producer(producer_id, partition, offset)

        def on_stored(stored: Stored) -> None:
            for index, (partition, offset) in enumerate(sent):
                if group.is_dead:
                    break
                if not stored.is_replicated:
                    if not stored.may_follow:
                        group.offsets.fail_of_producer(producer_id, partition, offset)
                    continue
                placed = placed_at(offset, stored.base_offset + index)
                if group.offsets.pend(producer_id, partition, offset, placed):
                    self._emit_pending(asked, partition, placed)
            if not stored.is_late:
                answers = [stored.error if error is ErrorCode.NONE else error for error in errors]
                self._outbox.reply(waiter, CommitAnswer(tuple(answers)))

        records = [offset_record(group.group_id, partition, offset) for partition, offset in sent]
        self._outbox.store_offsets(records, on_stored, asked.producer)

    def _emit_pending(
        self, asked: TransactionalCommitInput, partition: TopicPartition, placed: CommittedOffset
    ) -> None:
        self._events.pending(
            asked.group_id,
            partition,
            placed,
            transactional_id=asked.transactional_id,
            producer_id=asked.producer.producer_id,
            producer_epoch=asked.producer.producer_epoch,
            member_id=asked.member_id,
            generation_id=asked.generation_id,
        )
