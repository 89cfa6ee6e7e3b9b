"""The offsets of a group: committed, in flight, and pending in a transaction.

An offset becomes visible once its record is replicated. Of two records for a partition the one with
the higher log offset wins, in whatever order they are replicated or their transactions complete
(KAFKA-5247).
Source: kafka.coordinator.group.GroupMetadata,
org.apache.kafka.coordinator.group.OffsetMetadataManager, KIP-98, KIP-447.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

TopicPartition = tuple[str, int]
NO_EXPIRY = -1


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
