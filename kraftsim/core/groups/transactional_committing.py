"""Offset commits in transactions: validation of the member, and the append, which stays pending
until the marker.

The log validates the producer and the transaction coordinator has validated the transaction before;
only the group is validated here. Validation and append are one step: a rebalance in between would
accept offsets of a member that has lost its partitions (KAFKA-15784). A request without a member id
is not fenced: an old client, or a producer whose consumer has no group.
Source: kafka.coordinator.group.GroupCoordinator.{doTxnCommitOffsets, validateOffsetCommit}, KIP-98,
KIP-447.
"""

from collections.abc import Sequence

from msgspec import Struct

from kraftsim.core.groups.answers import CommitAnswer
from kraftsim.core.groups.classic_group import ClassicGroup, GroupState
from kraftsim.core.groups.committing import OffsetToCommit, by_topic_id, offset_of, placed_at
from kraftsim.core.groups.consumer.consumer_group import ConsumerGroup
from kraftsim.core.groups.consumer.topics_view import TopicsView
from kraftsim.core.groups.group_offsets import CommittedOffset, OffsetHolder, TopicPartition
from kraftsim.core.groups.group_records import offset_record
from kraftsim.core.groups.group_settings import GroupSettings
from kraftsim.core.groups.moment import Moment
from kraftsim.core.groups.offset_events import OffsetEvents
from kraftsim.core.groups.outbox import Outbox, Stored, WritingProducer
from protocol.errors import ErrorCode


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
        group: ClassicGroup | ConsumerGroup,
        waiter: int,
        asked: TransactionalCommitInput,
        now: Moment,
    ) -> None:
        """Commit offsets, or reply with an error. The session of a member is not renewed."""
        error = self.refuse(group, asked)
        if error is not None:
            self._outbox.reply(waiter, CommitAnswer((error,) * len(asked.offsets)))
            return
        self._store(group, waiter, asked, now)

    def refuse(
        self, group: ClassicGroup | ConsumerGroup, asked: TransactionalCommitInput
    ) -> ErrorCode | None:
        """Return the error of a commit.

        A member of a consumer group sends its member epoch; a stale one is ILLEGAL_GENERATION, too.

        Returns COORDINATOR_NOT_AVAILABLE, FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID or
        ILLEGAL_GENERATION. A rebalance in progress refuses no commit: a member that has to rejoin
        may still commit what it has read.
        """
        if isinstance(group, ConsumerGroup):
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
        self, group: OffsetHolder, waiter: int, asked: TransactionalCommitInput, now: Moment
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
                    if stored.error is not ErrorCode.REQUEST_TIMED_OUT:
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
