"""Log compaction: which part of which log is cleaned, how segments are grouped, and what remains of
each batch.

Nothing is cleaned at or above the last stable offset, in the active segment, or younger than
min.compaction.lag.ms.
Source: kafka.log.{LogCleanerManager.{cleanableOffsets, maxCompactionDelay,
calculateCleanableBytes}, LogToClean, Cleaner.{groupSegmentsBySize, buildOffsetMap, cleanInto},
CleanedTransactionMetadata}, MemoryRecords.filterTo; KIP-534.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Final

from kraftsim.partitions.rules_log import RELATIVE_OFFSET_MAX, Segment
from kraftsim.producer_state.rules_entries import ProducerStateEntry
from kraftsim.producer_state.rules_manager import marker_of
from protocol.records.batches import RecordBatch, TimestampType, build_batch, build_empty_batch
from protocol.records.record import MalformedRecord, Record
from protocol.storage.indexes import AbortedTransaction

SHORT_KEY_BYTES_MAX: Final = 16
DIGEST_BYTES: Final = 17
"""Longer than any key that is stored itself: a digest cannot equal a key."""
KEY_COST_BYTES: Final = 160
"""The memory of an entry in the map: 64 for the key, 32 for the offset, 36 to 72 for the slot in a
table that grows by doubling.
"""
NO_OFFSET: Final = -1


# --------------------------------------------------------------------------------------------------
# The cleanable part of a log, the order of logs, and the grouping of segments


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRules:
    """cleanup.policy (compact), min.cleanable.dirty.ratio, min and max.compaction.lag.ms,
    delete.retention.ms, segment.bytes, segment.index.bytes.
    """

    is_compacted: bool = False
    min_cleanable_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 86_400_000
    segment_bytes: int = 1 << 30
    index_bytes: int = 10_485_760


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExtent:
    """A log as the cleaner's input: start, end and last stable offset, and its segments, the active
    one last.
    """

    segments: Sequence[Segment]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The cleanable part of a log: from first_dirty_offset up to end_offset (exclusive), a
    segment's base offset.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """Whether a part of it is older than max.compaction.lag.ms."""
    has_new_start: bool
    """Whether the checkpoint is outside of the log and has to be rewritten."""

    @property
    def ratio(self) -> float:
        """The dirty ratio, from 0 to 1."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, rules: CleaningRules) -> bool:
        """Return whether it should be cleaned now."""
        return (
            self.is_overdue and self.cleanable_bytes > 0
        ) or self.ratio > rules.min_cleanable_ratio


def cleanable(
    extent: LogExtent, rules: CleaningRules, *, checkpoint_offset: int | None, now_ms: int
) -> Cleanable:
    """Return the cleanable part.

    `checkpoint_offset` is the end of the last cleaning; `now_ms` is the wall clock.
    """
    first_dirty_offset = extent.log_start_offset if checkpoint_offset is None else checkpoint_offset
    has_new_start = not extent.log_start_offset <= first_dirty_offset <= extent.log_end_offset
    if has_new_start:
        first_dirty_offset = extent.log_start_offset
    active = extent.segments[-1]
    dirty = _closed_from(extent.segments, first_dirty_offset)
    uncleanable_offset = min(extent.last_stable_offset, active.base_offset)
    if rules.min_compaction_lag_ms > 0:
        young = next(
            (each for each in dirty if each.max_timestamp > now_ms - rules.min_compaction_lag_ms),
            None,
        )
        if young is not None:
            uncleanable_offset = min(uncleanable_offset, young.base_offset)
    uncleanable_offset = max(uncleanable_offset, first_dirty_offset)
    first_uncleanable = next(iter(_closed_from(extent.segments, uncleanable_offset)), active)
    end_offset = first_uncleanable.base_offset
    begun = min(first_dirty_offset, end_offset)
    return Cleanable(
        first_dirty_offset=first_dirty_offset,
        end_offset=end_offset,
        clean_bytes=sum(
            each.size_bytes for each in extent.segments if each.base_offset < first_dirty_offset
        ),
        cleanable_bytes=sum(
            each.size_bytes for each in segments_between(extent.segments, begun, end_offset)
        ),
        is_overdue=_is_overdue(dirty, rules, now_ms),
        has_new_start=has_new_start,
    )


def segments_between(segments: Sequence[Segment], offset: int, end_offset: int) -> list[Segment]:
    """Return the segment with an offset, and the later ones that begin below end_offset."""
    if offset >= end_offset:
        return []
    first = max(
        (index for index, each in enumerate(segments) if each.base_offset <= offset), default=0
    )
    return [each for each in segments[first:] if each.base_offset < end_offset]


def groups(
    segments: Sequence[Segment], rules: CleaningRules, end_offset: int
) -> list[list[Segment]]:
    """Group adjacent segments that fit into one, oldest first.

    `end_offset`: the end of the cleaning.
    """
    found: list[list[Segment]] = []
    size_bytes = offset_bytes = time_bytes = 0
    for index, segment in enumerate(segments):
        last_offset = (
            segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        ) - 1
        fits = (
            found
            and size_bytes + segment.size_bytes <= rules.segment_bytes
            and offset_bytes + segment.offset_index_bytes <= rules.index_bytes
            and time_bytes + segment.time_index_bytes <= rules.index_bytes
            and (
                not segment.size_bytes
                or last_offset - found[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            )
        )
        if not fits:
            found.append([])
            size_bytes = offset_bytes = time_bytes = 0
        found[-1].append(segment)
        size_bytes += segment.size_bytes
        offset_bytes += segment.offset_index_bytes
        time_bytes += segment.time_index_bytes
    return found


class OffsetMap:
    """The last offset of each key, for as many keys as fit into `buffer_bytes`.

    Long keys are stored as 136-bit digests.
    """

    __slots__ = ("_keys_max", "_offsets", "latest_offset")

    def __init__(self, buffer_bytes: int, load_factor: float) -> None:
        self._keys_max = max(int(buffer_bytes * load_factor) // KEY_COST_BYTES, 1)
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = NO_OFFSET
        """The last offset that was scanned, inclusive."""

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Store the offset of a key; False if the map is full: even for a known key the scan ends
        here, as in Kafka.
        """
        if len(self._offsets) >= self._keys_max:
            return False
        self._offsets[_short(key)] = offset
        self.latest_offset = offset
        return True

    def last_offset_of(self, key: bytes) -> int:
        """Return the last scanned offset of a key; NO_OFFSET if it was not seen."""
        return self._offsets.get(_short(key), NO_OFFSET)


def _short(key: bytes) -> bytes:
    return (
        key if len(key) <= SHORT_KEY_BYTES_MAX else blake2b(key, digest_size=DIGEST_BYTES).digest()
    )


def _closed_from(segments: Sequence[Segment], offset: int) -> list[Segment]:
    """Return the segment with an offset and the later ones, without the active one."""
    return segments_between(segments, offset, segments[-1].base_offset)


def _is_overdue(dirty: Iterable[Segment], rules: CleaningRules, now_ms: int) -> bool:
    firsts = [
        each.first_timestamp
        for each in dirty
        if each.first_timestamp is not None and each.first_timestamp > 0
    ]
    return bool(firsts) and min(firsts) < now_ms - max(rules.max_compaction_lag_ms, 0)


# --------------------------------------------------------------------------------------------------
# What remains of each batch
#
# The last record of every key, tombstones and markers for a while, and the last batch of each
# producer. A batch keeps its base offset, its last offset and its sequences when records are
# removed: so offsets do not change, and a producer whose last batch it is continues its sequences.
# A tombstone, or the marker of a transaction without remaining records, gets a delete horizon when
# it is first cleaned (KIP-534).

NO_DATA: Final = -1


@dataclass(frozen=True, slots=True)
class RetainedOfProducer:
    """What is retained of an active producer: its last data batch, or (`last_data_offset` is -1) a
    marker of its epoch.
    """

    last_data_offset: int
    producer_epoch: int


def retained_batches_of(entries: Mapping[int, ProducerStateEntry]) -> dict[int, RetainedOfProducer]:
    """Return what is retained of every active producer, by its id."""
    return {
        producer_id: RetainedOfProducer(entry.last_offset, entry.producer_epoch)
        for producer_id, entry in entries.items()
    }


class CleanedTransactions:
    """Tracks transactions through a log: which batches are aborted, and which markers have no
    records left.

    `add` the aborted transactions of a segment before its batches; `kept` returns the aborted ones
    that still have records.
    """

    def __init__(self) -> None:
        self._aborted: list[tuple[int, int, AbortedTransaction]] = []
        self._begun: dict[int, AbortedTransaction] = {}
        self._has_records: set[int] = set()
        """Producer ids of started aborted transactions with records so far.

        For membership tests only.
        """
        self._committed: set[int] = set()
        """Producer ids of started transactions, not aborted ones, with records so far.

        For membership tests only.
        """
        self._kept: list[AbortedTransaction] = []

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions that overlap the following batches."""
        for each in aborted:
            heappush(self._aborted, (each.first_offset, each.last_offset, each))

    def kept(self) -> list[AbortedTransaction]:
        """Return the aborted transactions with records whose markers were processed since the last
        call.
        """
        kept, self._kept = self._kept, []
        return kept

    def may_go(self, batch: RecordBatch) -> bool:
        """Return whether the next batch is aborted or, for a marker, whether its transaction has no
        records.
        """
        while self._aborted and self._aborted[0][0] <= batch.last_offset:
            aborted = heappop(self._aborted)[2]
            self._begun.setdefault(aborted.producer_id, aborted)
        if batch.is_control:
            return self._marker_may_go(batch)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._begun:
            self._has_records.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def _marker_may_go(self, batch: RecordBatch) -> bool:
        if not batch.record_count:
            return True
        marker = marker_of(batch)
        if marker is None:
            return False
        producer_id = batch.producer_id
        if not marker.is_abort:
            had_records = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_records
        aborted = self._begun.pop(producer_id, None)
        if aborted is None or producer_id not in self._has_records:
            return True
        self._has_records.discard(producer_id)
        self._kept.append(aborted)
        return False


class KeyScan:
    """Fills the offset map with the last offset of each key, batch by batch."""

    def __init__(
        self, offsets: OffsetMap, first_offset: int, aborted: Iterable[AbortedTransaction]
    ) -> None:
        self._offsets = offsets
        self._first_offset = first_offset
        self._transactions = CleanedTransactions()
        self._transactions.add(aborted)

    def take(self, batch: RecordBatch) -> bool:
        """Process the next batch; False if the map has no room for all of its keys: the scan ends.

        Raises MalformedBatch.
        """
        may_go = self._transactions.may_go(batch)
        if not batch.is_control and not may_go:
            offsets, first_offset, last_offset = (
                self._offsets,
                self._first_offset,
                batch.last_offset,
            )
            for record in batch.records():
                if record.offset > last_offset:
                    raise MalformedRecord(
                        f"a record at offset {record.offset} in a batch that ends at {last_offset}",
                        batch.position,
                    )
                if (
                    record.key is not None
                    and record.offset >= first_offset
                    and not offsets.put(record.key, record.offset)
                ):
                    return False
        if batch.last_offset >= self._first_offset:
            self._offsets.latest_offset = batch.last_offset
        return True

    def end_segment(self, next_base_offset: int) -> None:
        """A segment was scanned completely, even if its last offsets are missing."""
        self._offsets.latest_offset = next_base_offset - 1


class Retention(Enum):
    """The handling of a batch without retained records."""

    DELETE = auto()
    """Delete it without reading its records."""
    DELETE_EMPTY = auto()
    """Delete it if no record is retained."""
    RETAIN_EMPTY = auto()
    """Retain its header."""


@dataclass(slots=True)
class CleaningCounts:
    """What a cleaning has read and retained."""

    read_bytes: int = 0
    read_records: int = 0
    kept_bytes: int = 0
    kept_records: int = 0


class BatchCleaner:
    """Cleans the batches in order. `now_ms` is the wall clock at the start of the cleaning."""

    def __init__(
        self, offsets: OffsetMap, *, end_offset: int, now_ms: int, delete_retention_ms: int
    ) -> None:
        self.transactions = CleanedTransactions()
        self.counts = CleaningCounts()
        self.lasts: Mapping[int, RetainedOfProducer] = {}
        """What is retained of each producer."""
        self._offsets = offsets
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms

    def clean(self, batch: RecordBatch) -> bytes | memoryview | None:
        """Return what is left of the next batch: itself if all of it stays, None if nothing does.

        Raises MalformedBatch.
        """
        self.counts.read_bytes += batch.size_bytes
        may_go = self.transactions.may_go(batch)
        is_deletable = may_go
        if batch.is_control:
            is_deletable = (
                may_go
                and batch.delete_horizon_ms is not None
                and batch.delete_horizon_ms <= self._now_ms
            )
        retention = self._retention(batch, is_deletable)
        if retention is Retention.DELETE:
            return None
        all_of_it = list(batch.records())
        kept = (
            []
            if is_deletable
            else [record for record in all_of_it if batch.is_control or self._stays(batch, record)]
        )
        self.counts.read_records += len(all_of_it)
        left = self._left(
            batch,
            kept,
            len(kept) == len(all_of_it),
            owes_horizon=may_go and batch.is_control,
            retention=retention,
        )
        if left is not None:
            self.counts.kept_records += len(kept)
            self.counts.kept_bytes += len(left)
        return left

    def _retention(self, batch: RecordBatch, is_deletable: bool) -> Retention:
        if batch.has_producer_id and self._is_last_of_producer(batch):
            return Retention.RETAIN_EMPTY
        if batch.next_offset == self._end_offset:
            return Retention.RETAIN_EMPTY  # the last batch preserves the start of the next segment
        return Retention.DELETE if is_deletable else Retention.DELETE_EMPTY

    def _is_last_of_producer(self, batch: RecordBatch) -> bool:
        last = self.lasts.get(batch.producer_id)
        if last is None:
            return False
        if last.last_data_offset == NO_DATA:
            return batch.is_control and batch.producer_epoch == last.producer_epoch
        return batch.last_offset == last.last_data_offset

    def _stays(self, batch: RecordBatch, record: Record) -> bool:
        if record.offset > self._offsets.latest_offset:
            return True
        if record.key is None or record.offset < self._offsets.last_offset_of(record.key):
            return False
        return (
            record.value is not None
            or batch.delete_horizon_ms is None
            or self._now_ms < batch.delete_horizon_ms
        )

    def _left(
        self,
        batch: RecordBatch,
        kept: list[Record],
        is_whole: bool,
        *,
        owes_horizon: bool,
        retention: Retention,
    ) -> bytes | memoryview | None:
        if not kept:
            return build_empty_batch(batch) if retention is Retention.RETAIN_EMPTY else None
        owes_horizon = owes_horizon or any(record.value is None for record in kept)
        horizon_ms = (
            self._horizon_ms
            if owes_horizon and batch.delete_horizon_ms is None
            else batch.delete_horizon_ms
        )
        if is_whole and horizon_ms == batch.delete_horizon_ms:
            return batch.view()
        _require_order(batch, kept)
        return build_batch(
            kept,
            base_offset=batch.base_offset,
            leader_epoch=batch.partition_leader_epoch,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            compression=batch.compression,
            transactional=batch.is_transactional,
            control=batch.is_control,
            append_timestamp=batch.max_timestamp
            if batch.timestamp_type is TimestampType.LOG_APPEND_TIME
            else None,
            delete_horizon_ms=horizon_ms,
            last_offset=batch.last_offset,
        )


def _require_order(batch: RecordBatch, records: Iterable[Record]) -> None:
    """Raise MalformedRecord if a client set arbitrary offset deltas: leaders do not check them, and
    no batch can be rebuilt with them.
    """
    next_offset = batch.base_offset
    for record in records:
        if not next_offset <= record.offset <= batch.last_offset:
            raise MalformedRecord(
                f"a record at offset {record.offset} where {next_offset} to {batch.last_offset} "
                "would be in order",
                batch.position,
            )
        next_offset = record.offset + 1
