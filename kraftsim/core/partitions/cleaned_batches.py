"""Compaction of single batches: the last record of every key, tombstones and markers for a while,
and the last batch of each producer remain.

A batch keeps its base offset, its last offset and its sequences when records are removed: so
offsets do not change, and a producer whose last batch it is continues its sequences. A tombstone,
or the marker of a transaction without remaining records, gets a delete horizon when it is first
cleaned (KIP-534).
Source: kafka.log.{Cleaner.{buildOffsetMap, cleanInto}, CleanedTransactionMetadata},
MemoryRecords.filterTo.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heappop, heappush
from typing import Final

from kraftsim.core.partitions.cleaning import OffsetMap
from kraftsim.producer_state.rules_entries import ProducerStateEntry
from kraftsim.producer_state.rules_manager import marker_of
from protocol.batches import RecordBatch, TimestampType, build_batch, build_empty_batch
from protocol.disk.transaction_index import AbortedTransaction
from protocol.malformed_batches import MalformedRecord
from protocol.records import Record

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
