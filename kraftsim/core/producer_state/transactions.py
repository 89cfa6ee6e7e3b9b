"""The transactions of one partition: open ones, and completed ones whose markers are not replicated yet.

Both limit the last stable offset: a marker that only the leader has may be lost with it, and then its transaction is open again.

Source: ProducerStateManager (ongoingTxns, unreplicatedTxns, lastStableOffset), EndTransactionMarker.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.batches import RecordBatch
from protocol.control_records import ControlType, EndTxnMarker, control_type, parse_control_record
from protocol.disk.transaction_index import AbortedTransaction
from protocol.malformed import MalformedMessage
from protocol.malformed_batches import MalformedBatch


@dataclass(frozen=True, slots=True)
class Marker:
    """The control record of a transaction's end."""

    is_abort: bool
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction from its first record to its marker, both inclusive."""

    first_offset: int
    marker_offset: int


class PartitionTransactions:
    """`open_transactions`: producer id -> first offset of its open transaction."""

    __slots__ = ("_open", "_unreplicated")

    def __init__(self, open_transactions: Mapping[int, int] | None = None) -> None:
        self._open: dict[int, int] = dict(sorted((open_transactions or {}).items(), key=lambda item: item[1]))
        """In the order of offsets, as they only grow."""
        self._unreplicated: list[CompletedTransaction] = []

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open or not replicated; None if there is none."""
        first_open = next(iter(self._open.values()), None)
        if not self._unreplicated:
            return first_open
        first_completed = min(each.first_offset for each in self._unreplicated)
        return first_completed if first_open is None else min(first_open, first_completed)

    @property
    def bind_readers(self) -> bool:
        """Whether any transaction is open or not replicated."""
        return bool(self._open or self._unreplicated)

    def is_open(self, producer_id: int) -> bool:
        """Return whether a producer has an open transaction here."""
        return producer_id in self._open

    def begin(self, producer_id: int, first_offset: int) -> None:
        """The first record of a transaction is in the log."""
        self._open[producer_id] = first_offset

    def end(self, producer_id: int, marker_offset: int, *, is_abort: bool) -> AbortedTransaction | None:
        """The marker of a transaction is in the log. Returns its transaction index entry if it aborts one with records here."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None  # KAFKA-10702: the transaction has no records here
        self._unreplicated.append(CompletedTransaction(first_offset, marker_offset))
        if not is_abort:
            return None
        return AbortedTransaction(
            producer_id=producer_id,
            first_offset=first_offset,
            last_offset=marker_offset,
            last_stable_offset=next(iter(self._open.values()), marker_offset + 1),
        )

    def forget(self, producer_id: int) -> None:
        """Drop the open transaction of a removed producer."""
        self._open.pop(producer_id, None)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drop the completed transactions with markers below it."""
        if self._unreplicated:
            self._unreplicated = [each for each in self._unreplicated if each.marker_offset >= high_watermark]


def marker_of(batch: RecordBatch) -> Marker | None:
    """Return the marker of a control batch of a producer; None if compaction removed it, or if it is another one. Raises MalformedBatch."""
    record = next(batch.records(), None)
    if record is None:
        return None
    try:
        kind = control_type(record.key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        marker = parse_control_record(record.key, record.value)
    except MalformedMessage as malformed:
        raise MalformedBatch(f"the marker at offset {batch.base_offset}: {malformed}", batch.position) from malformed
    assert isinstance(marker, EndTxnMarker), "its type is COMMIT or ABORT"
    return Marker(kind is ControlType.ABORT, marker.coordinator_epoch)
