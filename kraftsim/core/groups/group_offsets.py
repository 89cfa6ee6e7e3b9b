"""The offsets that a group has committed, those that are on their way, and those that a transaction may still commit.

An offset counts once its record is replicated; of two records for a partition the one that stands later in the log wins, in whatever order they
are replicated or their transactions end.   Source: kafka.coordinator.group.GroupMetadata, KIP-98, KIP-447.
"""

from collections.abc import Iterable
from dataclasses import dataclass

TopicPartition = tuple[str, int]
NO_EXPIRY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """One committed offset. `record_offset` is where its record stands in the coordinator's log; -1 while it is on its way there."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_EXPIRY
    record_offset: int = -1


class GroupOffsets:
    """By topic and partition, in the order of their first commit."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self._pending: dict[TopicPartition, CommittedOffset] = {}
        self._pending_of_producers: dict[int, dict[TopicPartition, CommittedOffset]] = {}

    @property
    def has_pending(self) -> bool:
        """Whether a commit is on its way, or waits for its transaction."""
        return bool(self._pending or self._pending_of_producers)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed, nor on its way."""
        return not (self.committed or self.has_pending)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Tell whether a commit of the partition is on its way, or waits for its transaction."""
        return partition in self._pending or any(partition in offsets for offsets in self._pending_of_producers.values())

    def pend(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        """A commit is on its way to the log."""
        self._pending[partition] = offset

    def commit(self, partition: TopicPartition, pended: CommittedOffset, stored: CommittedOffset) -> None:
        """A commit is replicated; `pended` is what it was on its way."""
        self.replay(partition, stored)
        self.fail(partition, pended)

    def fail(self, partition: TopicPartition, pended: CommittedOffset) -> None:
        """A commit is on its way no longer, unless a later one of the same partition is."""
        if self._pending.get(partition) is pended:
            del self._pending[partition]

    def replay(self, partition: TopicPartition, stored: CommittedOffset) -> None:
        """Take a commit whose record is in the log, unless a later one is known already."""
        known = self.committed.get(partition)
        if known is None or known.record_offset < stored.record_offset:
            self.committed[partition] = stored

    def pend_of_producer(self, producer_id: int, partition: TopicPartition, stored: CommittedOffset) -> None:
        """A transactional commit is in the log; its marker is not."""
        self._pending_of_producers.setdefault(producer_id, {})[partition] = stored

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker of a producer's transaction is in the log."""
        ended = self._pending_of_producers.pop(producer_id, {})
        if is_commit:
            for partition, stored in ended.items():
                self.replay(partition, stored)

    def forget(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget offsets, those on their way too; return which of them were committed."""
        gone = []
        for partition in partitions:
            self._pending.pop(partition, None)
            for producer_id, offsets in list(self._pending_of_producers.items()):
                offsets.pop(partition, None)
                if not offsets:
                    del self._pending_of_producers[producer_id]
            if self.committed.pop(partition, None) is not None:
                gone.append(partition)
        return gone

    def expired(self, now_ms: int, retention_ms: int, *, since_ms: int | None, kept_topics: frozenset[str]) -> list[TopicPartition]:
        """Return what has been kept for long enough: since a moment that holds for all, or since each was committed. Kept topics never expire."""
        return [
            partition
            for partition, offset in self.committed.items()
            if partition[0] not in kept_topics and partition not in self._pending and _is_over(offset, now_ms, retention_ms, since_ms)
        ]


def _is_over(offset: CommittedOffset, now_ms: int, retention_ms: int, since_ms: int | None) -> bool:
    if offset.expire_timestamp != NO_EXPIRY:
        return now_ms >= offset.expire_timestamp
    return now_ms - (offset.commit_timestamp if since_ms is None else since_ms) >= retention_ms
