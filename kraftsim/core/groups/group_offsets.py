"""The offsets that a group has committed, those that are on their way, and those that a transaction may still commit.

An offset counts once its record is replicated; of two records for a partition the one that stands later in the log wins, in whatever order they
are replicated or their transactions end (KAFKA-5247).
Source: kafka.coordinator.group.GroupMetadata, org.apache.kafka.coordinator.group.OffsetMetadataManager, KIP-98, KIP-447.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

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


@dataclass(frozen=True, slots=True)
class EndedOffset:
    """What became of a pending offset at the end of its transaction. It counts, unless the transaction was aborted or a later one is known."""

    partition: TopicPartition
    stored: CommittedOffset
    counts: bool


Offsets = dict[TopicPartition, CommittedOffset]


class GroupOffsets:
    """By topic and partition, in the order of their first commit; those of transactions by producer id, too."""

    def __init__(self) -> None:
        self.committed: Offsets = {}
        self._on_the_way: Offsets = {}
        self._on_the_way_of_producers: dict[int, Offsets] = {}
        self._pending: dict[int, Offsets] = {}
        """By producer id: what is in the log, and its marker is not."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed, nor on its way, nor pending."""
        return not (self.committed or self._on_the_way or self._on_the_way_of_producers or self._pending)

    @property
    def pending(self) -> dict[int, Offsets]:
        """What waits for the marker of its transaction, by producer id; to be read only."""
        return self._pending

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Tell whether a commit of the partition is on its way, or waits for its transaction."""
        return partition in self._on_the_way or self.is_pending(partition)

    def is_pending(self, partition: TopicPartition) -> bool:
        """Tell whether a commit of the partition belongs to a transaction that is not over."""
        return any(partition in offsets for of in (self._pending, self._on_the_way_of_producers) for offsets in of.values())

    # Plain commits -------------------------------------------------------------------------------------------------------------------------

    def send(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        """A commit is on its way to the log."""
        self._on_the_way[partition] = offset

    def commit(self, partition: TopicPartition, sent: CommittedOffset, stored: CommittedOffset) -> bool:
        """A commit is replicated; `sent` is what it was on its way. Tell whether it counts: it may be forgotten by now, or a later one be known."""
        counts = partition in self._on_the_way and self.replay(partition, stored)
        self.fail(partition, sent)
        return counts

    def fail(self, partition: TopicPartition, sent: CommittedOffset) -> None:
        """A commit is on its way no longer, unless a later one of the same partition is."""
        if self._on_the_way.get(partition) is sent:
            del self._on_the_way[partition]

    def replay(self, partition: TopicPartition, stored: CommittedOffset) -> bool:
        """Take a commit whose record is in the log, unless a later one is known already; tell whether it counts."""
        known = self.committed.get(partition)
        if known is not None and known.record_offset >= stored.record_offset:
            return False
        self.committed[partition] = stored
        return True

    # Commits of transactions ---------------------------------------------------------------------------------------------------------------

    def send_of_producer(self, producer_id: int, partition: TopicPartition, offset: CommittedOffset) -> None:
        """A commit of a producer's transaction is on its way to the log."""
        self._on_the_way_of_producers.setdefault(producer_id, {})[partition] = offset

    def pend(self, producer_id: int, partition: TopicPartition, sent: CommittedOffset, stored: CommittedOffset) -> bool:
        """A commit of a producer's transaction is replicated, and waits for the marker; tell whether it does: it may be forgotten by now."""
        is_wanted = partition in self._on_the_way_of_producers.get(producer_id, {})
        if is_wanted:
            self.replay_pending(producer_id, partition, stored)
        self.fail_of_producer(producer_id, partition, sent)
        return is_wanted

    def fail_of_producer(self, producer_id: int, partition: TopicPartition, sent: CommittedOffset) -> None:
        """A commit of a producer's transaction is on its way no longer, unless a later one of the same partition is."""
        offsets = self._on_the_way_of_producers.get(producer_id, {})
        if offsets.get(partition) is sent:
            _remove(self._on_the_way_of_producers, producer_id, partition)

    def replay_pending(self, producer_id: int, partition: TopicPartition, stored: CommittedOffset) -> None:
        """Take a commit of a producer's transaction whose record is in the log; its marker is not. The producer's latest one counts."""
        known = self._pending.setdefault(producer_id, {}).get(partition)
        if known is None or known.record_offset < stored.record_offset:
            self._pending[producer_id][partition] = stored

    def end_transaction(self, producer_id: int, marker_offset: int, *, is_commit: bool) -> list[EndedOffset]:
        """The marker of a producer's transaction is in the log: return what became of each offset that waited for it.

        What stands behind the marker belongs to the producer's next transaction, and waits for that.
        """
        offsets = self._pending.get(producer_id, {})
        ended = [(partition, stored) for partition, stored in offsets.items() if stored.record_offset < marker_offset]
        for partition, _ in ended:
            _remove(self._pending, producer_id, partition)
        return [EndedOffset(partition, stored, is_commit and self.materialise(partition, stored)) for partition, stored in ended]

    def materialise(self, partition: TopicPartition, stored: CommittedOffset) -> bool:
        """Let a pending offset count, unless the record of a later commit is in the log; tell whether it does."""
        return self.replay(partition, stored)

    # Forgetting ----------------------------------------------------------------------------------------------------------------------------

    def known(self) -> list[TopicPartition]:
        """Return every partition that has an offset, committed or pending."""
        return list(dict.fromkeys((*self.committed, *(partition for offsets in self._pending.values() for partition in offsets))))

    def forget(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget offsets, those on their way too; return which of them are in the log."""
        gone = []
        for partition in partitions:
            is_in_log = partition in self.committed or any(partition in offsets for offsets in self._pending.values())
            self._on_the_way.pop(partition, None)
            self.committed.pop(partition, None)
            for of_producers in (self._on_the_way_of_producers, self._pending):
                for producer_id in list(of_producers):
                    _remove(of_producers, producer_id, partition)
            if is_in_log:
                gone.append(partition)
        return gone

    def expired(self, now_ms: int, retention_ms: int, *, since_ms: int | None, kept_topics: frozenset[str]) -> list[TopicPartition]:
        """Return what has been kept for long enough: since a moment that holds for all, or since each was committed.

        Kept topics never expire, nor what may be replaced at any moment: the next commit is on its way, or waits for its transaction.
        """
        return [
            partition
            for partition, offset in self.committed.items()
            if partition[0] not in kept_topics and not self.is_unstable(partition) and _is_over(offset, now_ms, retention_ms, since_ms)
        ]


class OffsetHolder(Protocol):
    """A group of either kind, as far as its offsets are concerned."""

    group_id: str
    offsets: GroupOffsets

    @property
    def is_dead(self) -> bool:
        """Whether nothing counts for it any more."""
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
