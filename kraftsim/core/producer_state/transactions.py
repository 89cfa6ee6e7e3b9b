"""The transactions of one partition: which are open, and which have ended before their markers are on all replicas that are in sync.

Both bind the last stable offset: a marker that only the leader has may be lost with it, and then its transaction is open again.

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
    """What the coordinator said at the end of a transaction."""

    is_abort: bool
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction from its first record to its marker, both inside."""

    first_offset: int
    marker_offset: int


class PartitionTransactions:
    """`open_transactions`: producer id -> first offset of what it has under way."""

    __slots__ = ("_open", "_unreplicated")

    def __init__(self, open_transactions: Mapping[int, int] | None = None) -> None:
        self._open: dict[int, int] = dict(sorted((open_transactions or {}).items(), key=lambda item: item[1]))
        """In the order of the offsets, because they only grow."""
        self._unreplicated: list[CompletedTransaction] = []

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is not over on all replicas in sync; None if there is none."""
        first_open = next(iter(self._open.values()), None)
        if not self._unreplicated:
            return first_open
        first_completed = min(each.first_offset for each in self._unreplicated)
        return first_completed if first_open is None else min(first_open, first_completed)

    @property
    def bind_readers(self) -> bool:
        """Whether there are any that are not over on all replicas in sync."""
        return bool(self._open or self._unreplicated)

    def is_open(self, producer_id: int) -> bool:
        """Tell whether a producer has a transaction under way here."""
        return producer_id in self._open

    def begin(self, producer_id: int, first_offset: int) -> None:
        """The first record of a transaction is in the log."""
        self._open[producer_id] = first_offset

    def end(self, producer_id: int, marker_offset: int, *, is_abort: bool) -> AbortedTransaction | None:
        """The marker of a transaction is in the log. Comes back with its entry of the transaction index, if it aborts one that has records here."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None  # KAFKA-10702: nothing was written here
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
        """Drop the open transaction of a producer that is not known any more."""
        self._open.pop(producer_id, None)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Let go of the transactions whose markers lie before it."""
        if self._unreplicated:
            self._unreplicated = [each for each in self._unreplicated if each.marker_offset >= high_watermark]


def marker_of(batch: RecordBatch) -> Marker | None:
    """Return the marker in a control batch of a producer; None if compaction took it, or if it is none. Raises MalformedBatch."""
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
    assert isinstance(marker, EndTxnMarker), "its kind says so"
    return Marker(kind is ControlType.ABORT, marker.coordinator_epoch)
