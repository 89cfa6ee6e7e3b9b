"""The committed offsets of a group, their events, and the effects by which a coordinator replies
and appends.

An offset becomes visible once its record is replicated. Of two records for a partition the one with
the higher log offset wins, in whatever order they are replicated or their transactions complete
(KAFKA-5247).
Source: kafka.coordinator.group.{GroupMetadata, GroupMetadataManager},
org.apache.kafka.coordinator.group.OffsetMetadataManager, KIP-98, KIP-447.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from msgspec import Struct

from kraftsim.events.event import Event
from kraftsim.groups.events import (
    GroupRemoved,
    OffsetCommitted,
    OffsetForgotten,
    OffsetLoaded,
    OffsetMaterialised,
    OffsetReturned,
    PendingOffsetAdded,
    PendingOffsetDropped,
)
from kraftsim.groups.rules_timing import GroupAnswer, GroupMoment
from protocol.coordinator.registry import build_record
from protocol.errors import ErrorCode
from protocol.records.batches import NO_PRODUCER_ID
from protocol.schema import Message

TopicPartition = tuple[str, int]
NO_EXPIRY = -1


# --------------------------------------------------------------------------------------------------
# Offsets: committed, in flight, and pending in a transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """One committed offset.

    `record_offset` is the log offset of its record; -1 while the append is in flight.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_EXPIRY
    record_offset: int = -1


@dataclass(frozen=True, slots=True)
class EndedOffset:
    """The result of a pending offset when its transaction completes.

    It becomes visible unless aborted or superseded.
    """

    partition: TopicPartition
    stored: CommittedOffset
    counts: bool


Offsets = dict[TopicPartition, CommittedOffset]


class GroupOffsets:
    """By topic and partition, in the order of the first commit; transactional ones also by producer
    id.
    """

    def __init__(self) -> None:
        self.committed: Offsets = {}
        self._on_the_way: Offsets = {}
        self._on_the_way_of_producers: dict[int, Offsets] = {}
        self._pending: dict[int, Offsets] = {}
        """By producer id: offsets in the log whose transaction has no marker yet."""

    @property
    def is_empty(self) -> bool:
        """Whether no offset is committed, in flight or pending."""
        return not (
            self.committed or self._on_the_way or self._on_the_way_of_producers or self._pending
        )

    @property
    def pending(self) -> dict[int, Offsets]:
        """Offsets that wait for the marker of their transaction, by producer id; read-only."""
        return self._pending

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Return whether a commit of the partition is in flight or pending in a transaction."""
        return partition in self._on_the_way or self.is_pending(partition)

    def is_pending(self, partition: TopicPartition) -> bool:
        """Return whether a commit of the partition belongs to an open transaction."""
        return any(
            partition in offsets
            for of in (self._pending, self._on_the_way_of_producers)
            for offsets in of.values()
        )

    # Commits outside of transactions
    # ----------------------------------------------------------------------------------------------

    def send(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        """The append of a commit is in flight."""
        self._on_the_way[partition] = offset

    def commit(
        self, partition: TopicPartition, sent: CommittedOffset, stored: CommittedOffset
    ) -> bool:
        """A commit is replicated; `sent` is its in-flight value.

        Return whether it is visible: not if it was deleted or superseded.
        """
        counts = partition in self._on_the_way and self.replay(partition, stored)
        self.fail(partition, sent)
        return counts

    def fail(self, partition: TopicPartition, sent: CommittedOffset) -> None:
        """A commit failed; a later one of the same partition stays in flight."""
        if self._on_the_way.get(partition) is sent:
            del self._on_the_way[partition]

    def replay(self, partition: TopicPartition, stored: CommittedOffset) -> bool:
        """Apply a commit from the log unless a later one is known; return whether it is visible."""
        known = self.committed.get(partition)
        if known is not None and known.record_offset >= stored.record_offset:
            return False
        self.committed[partition] = stored
        return True

    # Transactional commits
    # ----------------------------------------------------------------------------------------------

    def send_of_producer(
        self, producer_id: int, partition: TopicPartition, offset: CommittedOffset
    ) -> None:
        """The append of a transactional commit is in flight."""
        self._on_the_way_of_producers.setdefault(producer_id, {})[partition] = offset

    def pend(
        self,
        producer_id: int,
        partition: TopicPartition,
        sent: CommittedOffset,
        stored: CommittedOffset,
    ) -> bool:
        """A transactional commit is replicated and waits for the marker; return whether it does:
        not if it was deleted.
        """
        is_wanted = partition in self._on_the_way_of_producers.get(producer_id, {})
        if is_wanted:
            self.replay_pending(producer_id, partition, stored)
        self.fail_of_producer(producer_id, partition, sent)
        return is_wanted

    def fail_of_producer(
        self, producer_id: int, partition: TopicPartition, sent: CommittedOffset
    ) -> None:
        """A transactional commit failed; a later one of the same partition stays in flight."""
        offsets = self._on_the_way_of_producers.get(producer_id, {})
        if offsets.get(partition) is sent:
            _remove(self._on_the_way_of_producers, producer_id, partition)

    def replay_pending(
        self, producer_id: int, partition: TopicPartition, stored: CommittedOffset
    ) -> None:
        """Apply a transactional commit from the log, without marker yet.

        The producer's latest commit wins.
        """
        known = self._pending.setdefault(producer_id, {}).get(partition)
        if known is None or known.record_offset < stored.record_offset:
            self._pending[producer_id][partition] = stored

    def end_transaction(
        self, producer_id: int, marker_offset: int, *, is_commit: bool
    ) -> list[EndedOffset]:
        """The marker of a producer's transaction is replicated: return the result of each pending
        offset.

        Offsets behind the marker belong to the producer's next transaction, and stay pending.
        """
        offsets = self._pending.get(producer_id, {})
        ended = [
            (partition, stored)
            for partition, stored in offsets.items()
            if stored.record_offset < marker_offset
        ]
        for partition, _ in ended:
            _remove(self._pending, producer_id, partition)
        return [
            EndedOffset(partition, stored, is_commit and self.materialise(partition, stored))
            for partition, stored in ended
        ]

    def materialise(self, partition: TopicPartition, stored: CommittedOffset) -> bool:
        """Make a pending offset visible unless a later commit is in the log; return whether it
        is.
        """
        return self.replay(partition, stored)

    # Deletion
    # ----------------------------------------------------------------------------------------------

    def known(self) -> list[TopicPartition]:
        """Return every partition with a committed or pending offset."""
        return list(
            dict.fromkeys(
                (
                    *self.committed,
                    *(partition for offsets in self._pending.values() for partition in offsets),
                )
            )
        )

    def forget(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Delete offsets, in-flight ones too; return those that are in the log."""
        gone = []
        for partition in partitions:
            is_in_log = partition in self.committed or any(
                partition in offsets for offsets in self._pending.values()
            )
            self._on_the_way.pop(partition, None)
            self.committed.pop(partition, None)
            for of_producers in (self._on_the_way_of_producers, self._pending):
                for producer_id in list(of_producers):
                    _remove(of_producers, producer_id, partition)
            if is_in_log:
                gone.append(partition)
        return gone

    def expired(
        self, now_ms: int, retention_ms: int, *, since_ms: int | None, kept_topics: frozenset[str]
    ) -> list[TopicPartition]:
        """Return the expired offsets: retention since a common timestamp, or since each commit.

        Offsets of kept topics do not expire, nor do unstable ones: the next commit is in flight, or
        pending in a transaction.
        """
        return [
            partition
            for partition, offset in self.committed.items()
            if partition[0] not in kept_topics
            and not self.is_unstable(partition)
            and _is_over(offset, now_ms, retention_ms, since_ms)
        ]


class OffsetHolder(Protocol):
    """The offsets of a group of either protocol."""

    group_id: str
    offsets: GroupOffsets

    @property
    def is_dead(self) -> bool:
        """Whether the group is removed: requests and callbacks for it have no effect."""
        ...


def _remove(of_producers: dict[int, Offsets], producer_id: int, partition: TopicPartition) -> None:
    offsets = of_producers[producer_id]
    offsets.pop(partition, None)
    if not offsets:
        del of_producers[producer_id]


def _is_over(offset: CommittedOffset, now_ms: int, retention_ms: int, since_ms: int | None) -> bool:
    if offset.expire_timestamp != NO_EXPIRY:
        return now_ms >= offset.expire_timestamp
    return now_ms - (offset.commit_timestamp if since_ms is None else since_ms) >= retention_ms


# --------------------------------------------------------------------------------------------------
# Events, one per partition: committed, pending, visible, fetched, deleted

NO_OFFSET = -1


def discard(event: Event) -> None:
    """Drop an event."""


class RemovalReason(Enum):
    """Why a coordinator removes an offset or a group."""

    EXPIRED = "expired"
    REQUESTED = "requested"
    TOPIC_DELETED = "topic deleted"


class OffsetEvents:
    """Emits the offset events of one `__consumer_offsets` partition."""

    def __init__(self, emit: Callable[[Event], None], coordinator_partition: int) -> None:
        self._emit = emit
        self._coordinator_partition = coordinator_partition

    def committed(
        self,
        group_id: str,
        partition: TopicPartition,
        placed: CommittedOffset,
        *,
        member_id: str,
        generation_id: int,
        is_current: bool,
    ) -> None:
        """A commit outside of transactions is replicated."""
        self._emit(
            OffsetCommitted(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                topic=partition[0],
                partition=partition[1],
                offset=placed.offset,
                record_offset=placed.record_offset,
                is_current=is_current,
                member_id=member_id,
                generation_id=generation_id,
            )
        )

    def pending(
        self,
        group_id: str,
        partition: TopicPartition,
        placed: CommittedOffset,
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        member_id: str,
        generation_id: int,
    ) -> None:
        """A commit in a transaction is replicated."""
        self._emit(
            PendingOffsetAdded(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                topic=partition[0],
                partition=partition[1],
                offset=placed.offset,
                record_offset=placed.record_offset,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional_id=transactional_id,
                member_id=member_id,
                generation_id=generation_id,
            )
        )

    def ended(
        self,
        group_id: str,
        ended: EndedOffset,
        *,
        producer_id: int,
        producer_epoch: int,
        marker_offset: int,
        is_commit: bool,
    ) -> None:
        """The transaction of a pending commit is completed."""
        if not is_commit:
            self._emit(
                PendingOffsetDropped(
                    coordinator_partition=self._coordinator_partition,
                    group_id=group_id,
                    topic=ended.partition[0],
                    partition=ended.partition[1],
                    offset=ended.stored.offset,
                    record_offset=ended.stored.record_offset,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    marker_offset=marker_offset,
                )
            )
            return
        self._emit(
            OffsetMaterialised(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                topic=ended.partition[0],
                partition=ended.partition[1],
                offset=ended.stored.offset,
                record_offset=ended.stored.record_offset,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                marker_offset=marker_offset,
                is_current=ended.counts,
            )
        )

    def loaded(
        self,
        group_id: str,
        partition: TopicPartition,
        stored: CommittedOffset,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """An offset is loaded from the log."""
        self._emit(
            OffsetLoaded(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                topic=partition[0],
                partition=partition[1],
                offset=stored.offset,
                record_offset=stored.record_offset,
                producer_id=producer_id,
            )
        )

    def returned(
        self,
        group_id: str,
        partition: TopicPartition,
        stored: CommittedOffset | None,
        error: ErrorCode,
        *,
        require_stable: bool,
    ) -> None:
        """An offset fetch returned an offset, no offset, or an error."""
        self._emit(
            OffsetReturned(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                topic=partition[0],
                partition=partition[1],
                offset=NO_OFFSET if stored is None else stored.offset,
                record_offset=NO_OFFSET if stored is None else stored.record_offset,
                require_stable=require_stable,
                error_code=int(error),
            )
        )

    def deleted(self, group_id: str, partition: TopicPartition, reason: RemovalReason) -> None:
        """An offset is deleted."""
        self._emit(
            OffsetForgotten(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                topic=partition[0],
                partition=partition[1],
                reason=reason.value,
            )
        )

    def removed(self, group_id: str, reason: RemovalReason) -> None:
        """A group is removed."""
        self._emit(
            GroupRemoved(
                coordinator_partition=self._coordinator_partition,
                group_id=group_id,
                reason=reason.value,
            )
        )


# --------------------------------------------------------------------------------------------------
# Effects: replies and appends
#
# `kraftsim.groups.coordinated_partition` executes them in order, and reports the result of each
# append.
# Source: GroupMetadataManager.appendForGroup.

OF_EVERY_STORE: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""Error codes returned to members when an append or its replication fails."""
OF_GROUPS: Final = {
    **OF_EVERY_STORE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""GroupMetadataManager.storeGroup."""
OF_OFFSETS: Final = {
    **OF_EVERY_STORE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""GroupMetadataManager.storeOffsets."""


OF_CHANGES: Final = {
    **OF_EVERY_STORE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.NONE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""CoordinatorOperationExceptionHelper.handleOperationException; CoordinatorRuntime waits for the
high watermark, and does not look at the ISR again.
"""
REPLICATED: Final = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""The result of an append that is replicated to all in-sync replicas."""


class CoordinatorRecord(Struct, frozen=True):
    """One record of the coordinator's topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


def coordinator_record(key: Message, value: Message | None, version: int = 0) -> CoordinatorRecord:
    """Return the record of a key and a value."""
    return CoordinatorRecord(*build_record(key, value, version))


class GroupReply(Struct, frozen=True):
    """Reply to the pending request with this number."""

    waiter: int
    answer: GroupAnswer


class WritingProducer(Struct, frozen=True):
    """The producer whose transaction the records belong to.

    `guard` is its verification guard, if the transaction was verified.
    """

    producer_id: int
    producer_epoch: int
    guard: int | None = None


class Append(Struct, frozen=True):
    """Append records to the coordinator's partition in one batch, in a producer's transaction if
    there is one.

    With a token, report the result with `Outbox.stored`; with None the result is not awaited.
    Without records, report once everything that was appended before is replicated.
    """

    records: tuple[CoordinatorRecord, ...]
    token: int | None
    producer: WritingProducer | None = None
    holds_already: bool = False
    """Already applied in memory: if the append fails, the groups are reloaded from the log.

    Ignores min.insync.replicas.
    """


Effect = GroupReply | Append


class Stored(Struct, frozen=True):
    """The result of an append: NONE once it is on all in-sync replicas, with the offset of its
    first record; else the error.

    `is_replicated`: the records are committed, possibly with an error, too: the ISR has shrunk
    below min.insync.replicas. `may_follow`: it has timed out, and may be replicated later.
    `is_late`: the request has already failed with a timeout.
    """

    error: ErrorCode
    base_offset: int
    now: GroupMoment
    is_replicated: bool = False
    is_late: bool = False
    may_follow: bool = False


OnStored = Callable[[Stored], None]


class Awaited(Struct):
    """A pending append. With `outlasts_answer` it stays pending after the request is answered."""

    on_stored: OnStored
    errors: Mapping[ErrorCode, ErrorCode]
    outlasts_answer: bool
    is_answered: bool = False


class Outbox:
    """Effects in order, and the callback of each append."""

    def __init__(self, offset_errors: Mapping[ErrorCode, ErrorCode] = OF_OFFSETS) -> None:
        self._offset_errors = offset_errors
        self._effects: list[Effect] = []
        self._waiting: dict[int, Awaited] = {}
        self._token_count = 0

    def reply(self, waiter: int, answer: GroupAnswer) -> None:
        """Answer a pending request."""
        self._effects.append(GroupReply(waiter, answer))

    def store_group(self, record: CoordinatorRecord, on_stored: OnStored) -> None:
        """Append the record of a group, and call `on_stored` once it is replicated or has
        failed.
        """
        self._store((record,), Awaited(on_stored, OF_GROUPS, outlasts_answer=False))

    def store_offsets(
        self,
        records: Sequence[CoordinatorRecord],
        on_stored: OnStored,
        producer: WritingProducer | None = None,
    ) -> None:
        """Append the records of offsets, and call `on_stored` with the result; possibly twice, as a
        timed-out append may still succeed.
        """
        self._store(
            records, Awaited(on_stored, self._offset_errors, outlasts_answer=True), producer
        )

    def store_changes(self, records: Sequence[CoordinatorRecord], on_stored: OnStored) -> None:
        """Append changes that are already applied in memory, and call `on_stored` with the result;
        possibly twice, as a timed-out append may still succeed.
        """
        self._token_count += 1
        self._waiting[self._token_count] = Awaited(on_stored, OF_CHANGES, outlasts_answer=True)
        self._effects.append(Append(tuple(records), self._token_count, holds_already=True))

    def _store(
        self,
        records: Sequence[CoordinatorRecord],
        awaited: Awaited,
        producer: WritingProducer | None = None,
    ) -> None:
        self._token_count += 1
        self._waiting[self._token_count] = awaited
        self._effects.append(Append(tuple(records), self._token_count, producer))

    def write(self, records: Sequence[CoordinatorRecord]) -> None:
        """Append records without awaiting the result."""
        self._effects.append(Append(tuple(records), None))

    def take(self) -> list[Effect]:
        """Return the effects of the present input, in order."""
        effects, self._effects = self._effects, []
        return effects

    def stored(self, token: int, stored: Stored) -> None:
        """Continue after an append.

        A timed-out append of offsets may be reported a second time with its final result.
        """
        waiting = self._waiting[token]
        is_late = waiting.is_answered
        if stored.error is ErrorCode.REQUEST_TIMED_OUT and waiting.outlasts_answer:
            waiting.is_answered = True
        else:
            del self._waiting[token]
        result = Stored(
            error=waiting.errors.get(stored.error, stored.error),
            base_offset=stored.base_offset,
            now=stored.now,
            is_replicated=stored.error in REPLICATED,
            is_late=is_late,
            may_follow=stored.error is ErrorCode.REQUEST_TIMED_OUT,
        )
        waiting.on_stored(result)

    def is_awaited(self, token: int) -> bool:
        """Return whether the result of an append is still awaited."""
        return token in self._waiting
