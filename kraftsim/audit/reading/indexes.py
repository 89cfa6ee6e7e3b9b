"""Reads the indexes of a segment, and holds them against the segment.

Kafka's own rules at startup: the size is a multiple of an entry, and the last offset is not below
the base offset. Besides, an entry of the offset index names the start of a batch, from which its
offset is reached; it need not be the last offset of that batch, because a follower appends several
batches at a time. Entries of zeros after the first one are those of a preallocated file.

Source: OffsetIndex, TimeIndex, TransactionIndex (sanityCheck, lookup), LogSegment (append).
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraftsim.audit.reading.disks import FileSource
from kraftsim.audit.reading.pieces import Origin, TablePiece
from kraftsim.audit.reading.record_walk import Longs
from kraftsim.audit.reading.segments import (
    INDEX_ENTRY,
    SegmentRange,
    index_entries,
    last_offset_of,
    record_batch,
    written_entries,
)
from protocol.malformed import MalformedMessage
from protocol.storage.indexes import (
    TRANSACTION_BYTES,
    TRANSACTION_INDEX_VERSION,
    AbortedTransaction,
)
from protocol.version_prefixed import parse_version_prefixed, prefixed_version

TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
PROBLEMS_MAX: Final = 100
"""Rows of `problems` about the entries of one index: a foreign one contradicts with every entry."""


def offset_index_pieces(origin: Origin, base_offset: int, content: bytes) -> Iterator[TablePiece]:
    """Yield the entries of an offset index, and its contradictions with itself."""
    yield from _odd_size(origin, content, INDEX_ENTRY.itemsize)
    entries = np.frombuffer(content, INDEX_ENTRY, len(content) // INDEX_ENTRY.itemsize)
    entries = entries[: written_entries(entries["relative_offset"], entries["position"])]
    offsets = base_offset + entries["relative_offset"].astype(np.int64)
    positions = entries["position"].astype(np.int64)
    values = {"indexed_offset": pa.array(offsets), "indexed_position": pa.array(positions)}
    yield from _entries("offset_index", origin, base_offset, values, len(entries))
    yield from _unordered(origin, INDEX_ENTRY.itemsize, offsets, "offset", is_strict=True)
    yield from _unordered(origin, INDEX_ENTRY.itemsize, positions, "position", is_strict=True)
    yield from _below_base(origin, offsets, base_offset)


def time_index_pieces(
    origin: Origin, base_offset: int, content: bytes, end_offset: int | None
) -> Iterator[TablePiece]:
    """Yield the entries of a time index, and its contradictions with itself and with the end of its
    segment: one past its last offset; None for a segment without a batch.
    """
    yield from _odd_size(origin, content, TIME_ENTRY.itemsize)
    entries = np.frombuffer(content, TIME_ENTRY, len(content) // TIME_ENTRY.itemsize)
    entries = entries[: written_entries(entries["timestamp"], entries["relative_offset"])]
    offsets = base_offset + entries["relative_offset"].astype(np.int64)
    timestamps = entries["timestamp"].astype(np.int64)
    values = {"indexed_ms": pa.array(timestamps), "indexed_offset": pa.array(offsets)}
    yield from _entries("time_index", origin, base_offset, values, len(entries))
    yield from _unordered(origin, TIME_ENTRY.itemsize, timestamps, "timestamp", is_strict=False)
    yield from _unordered(origin, TIME_ENTRY.itemsize, offsets, "offset", is_strict=False)
    yield from _below_base(origin, offsets, base_offset)
    if end_offset is not None:
        for number in np.flatnonzero(offsets >= end_offset)[:1].tolist():
            yield origin.problem(
                "index",
                f"entry {number} names offset {int(offsets[number])}, "
                f"the segment ends before {end_offset}",
                position=number * TIME_ENTRY.itemsize,
            )


def transaction_index_pieces(
    origin: Origin, base_offset: int, content: bytes
) -> Iterator[TablePiece]:
    """Yield the aborted transactions, and contradictions of the index with itself."""
    yield from _odd_size(origin, content, TRANSACTION_BYTES)
    last_offset = base_offset - 1
    rows = []
    for start in range(0, len(content) - TRANSACTION_BYTES + 1, TRANSACTION_BYTES):
        entry = content[start : start + TRANSACTION_BYTES]
        if prefixed_version(entry) != TRANSACTION_INDEX_VERSION:
            yield origin.problem(
                "unsupported",
                f"an entry of version {prefixed_version(entry)}",
                position=start,
                size=len(content) - start,
            )
            break
        try:
            found = parse_version_prefixed(AbortedTransaction, entry)
        except MalformedMessage as malformed:
            yield origin.problem("malformed", malformed.reason, position=start)
            break
        if found.last_offset <= last_offset:
            yield origin.problem(
                "index",
                f"a marker at offset {found.last_offset} after offset {last_offset}",
                position=start,
                size=TRANSACTION_BYTES,
            )
        last_offset = max(last_offset, found.last_offset)
        rows.append(
            (
                *origin.prefix,
                base_offset,
                found.producer_id,
                found.first_offset,
                found.last_offset,
                found.last_stable_offset,
            )
        )
    if rows:
        yield TablePiece("aborted_transactions", rows)


def segment_end(disk: FileSource, part: SegmentRange) -> int | None:
    """Return the offset after the last batch of a segment, None without one. Raises OSError."""
    return last_offset_of(disk, part)


class IndexComparison:
    """Holds the entries of an offset index whose positions are in a range against its batches."""

    def __init__(self, disk: FileSource, part: SegmentRange) -> None:
        self._part = part
        entries = (
            np.zeros(0, INDEX_ENTRY) if part.index is None else index_entries(disk, part.index)
        )
        positions = entries["position"].astype(np.int64)
        is_ours = positions >= part.start
        if not part.is_last:
            is_ours &= positions < part.end
        self._numbers = np.flatnonzero(is_ours)
        self._positions = positions[is_ours]
        self._offsets = part.base_offset + entries["relative_offset"][is_ours].astype(np.int64)
        self._is_sound = np.zeros(len(self._positions), bool)

    def see(self, positions: Longs, base_offsets: Longs) -> None:
        """Compare with some batches."""
        if not len(self._positions) or not len(positions):
            return
        found = np.searchsorted(positions, self._positions)
        found[found == len(positions)] = 0
        self._is_sound |= (positions[found] == self._positions) & (
            base_offsets[found] <= self._offsets
        )

    def pass_over(self, start: int, size: int) -> None:
        """Do not report entries that name a place in unreadable bytes: these are reported."""
        self._is_sound |= (self._positions >= start) & (self._positions < start + size)

    def pieces(self) -> Iterator[TablePiece]:
        """Yield a row of `problems` for each entry that names no batch, or one after its offset."""
        index = self._part.index
        for at in np.flatnonzero(~self._is_sound)[:PROBLEMS_MAX].tolist():
            assert index is not None, "entries come from a file"
            position = int(self._positions[at])
            where = (
                "which is after its end"
                if position >= self._part.end
                else "where no batch with that offset or an earlier one begins"
            )
            yield index.problem(
                "index",
                f"offset {int(self._offsets[at])} is said to be at byte {position} of the "
                f"segment, {where}",
                position=int(self._numbers[at]) * INDEX_ENTRY.itemsize,
                size=INDEX_ENTRY.itemsize,
            )


def _entries(
    table: str, origin: Origin, base_offset: int, values: dict[str, pa.Array], count: int
) -> Iterator[TablePiece]:
    if count:
        columns = {
            "base_offset": pa.repeat(pa.scalar(base_offset, pa.int64()), count),
            "entry": pa.array(np.arange(count, dtype=np.int32)),
            **values,
        }
        yield TablePiece(table, record_batch(table, origin, columns, count))


def _odd_size(origin: Origin, content: bytes, entry_bytes: int) -> Iterator[TablePiece]:
    odd = len(content) % entry_bytes
    if odd:
        yield origin.problem(
            "index",
            f"{len(content)} bytes are no multiple of {entry_bytes}",
            position=len(content) - odd,
            size=odd,
        )


def _unordered(
    origin: Origin, entry_bytes: int, values: Longs, what: str, *, is_strict: bool
) -> Iterator[TablePiece]:
    steps = np.diff(values)
    wrong: npt.NDArray[np.bool_] = steps <= 0 if is_strict else steps < 0
    for number in np.flatnonzero(wrong)[:PROBLEMS_MAX].tolist():
        yield origin.problem(
            "index",
            f"{what} {int(values[number + 1])} after {what} {int(values[number])}",
            position=(number + 1) * entry_bytes,
            size=entry_bytes,
        )


def _below_base(origin: Origin, offsets: Longs, base_offset: int) -> Iterator[TablePiece]:
    if len(offsets) and offsets[-1] < base_offset:
        yield origin.problem(
            "index", f"the last offset {int(offsets[-1])} is below the base offset {base_offset}"
        )
