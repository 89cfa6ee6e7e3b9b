"""Offset, time and transaction indexes, checked against their segment.

Source: kafka.tools.DumpLogSegments (dumpIndex, dumpTimeIndex, dumpTxnIndex), OffsetIndex, TimeIndex
(sanityCheck).
"""

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final

from kraftsim.inspect.dump.rows import DumpRow, Severity, words_of, wrong
from kraftsim.inspect.json_lines import Json
from protocol.malformed import MalformedMessage
from protocol.records.message_sets import AnyBatch, open_batch
from protocol.records.record import Bytes
from protocol.storage.indexes import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    OffsetEntry,
    TimeEntry,
    parse_transaction_index,
)

NO_TIMESTAMP: Final = -1
TRANSACTION_INDEX_VERSION: Final = 0


class Scrutiny(Enum):
    """What is done with an index: print its content, only check it against the log, or only the
    sanity check that a broker makes at startup.
    """

    SHOW = "show"
    VERIFY = "verify"
    SANITY = "sanity"


def offset_index_rows(
    path: Path, base_offset: int, index: bytes, log: Bytes | None, scrutiny: Scrutiny
) -> Iterator[DumpRow]:
    """Yield the entries, and those that contradict the log. A missing log is not checked."""
    entries = offset_entries(base_offset, index)
    if not entries:
        yield DumpRow("empty", f"{path} is empty.", {"entries": 0})
        return
    if scrutiny is Scrutiny.SANITY:
        is_sane = len(index) % OFFSET_ENTRY.size == 0 and entries[-1].offset >= base_offset
        yield _sanity(path, is_sane, entries[-1].offset, base_offset)
        return
    mismatches = []
    for entry in _written(entries, base_offset):
        if log is not None:
            found = _last_offset_at(log, entry.position)
            if found != entry.offset:
                mismatches.append((entry.offset, found))
        if scrutiny is Scrutiny.SHOW:
            fields: dict[str, Json] = {"offset": entry.offset, "position": entry.position}
            yield DumpRow("offsetIndexEntry", words_of(fields), fields)
    if mismatches:
        yield DumpRow("heading", f"Mismatches in :{path.absolute()}", {}, Severity.WRONG)
    for index_offset, log_offset in reversed(mismatches):
        said = "none" if log_offset is None else str(log_offset)
        yield wrong(
            f"  Index offset: {index_offset}, log offset: {said}",
            indexOffset=index_offset,
            logOffset=log_offset,
        )


def time_index_rows(
    path: Path,
    base_offset: int,
    index: bytes,
    offset_index: bytes | None,
    log: Bytes | None,
    scrutiny: Scrutiny,
) -> Iterator[DumpRow]:
    """Yield the entries, and those that contradict the log."""
    entries = [
        TimeEntry(timestamp, base_offset + relative)
        for timestamp, relative in TIME_ENTRY.iter_unpack(_whole(index, TIME_ENTRY.size))
    ]
    if scrutiny is Scrutiny.SANITY:
        is_sane = len(index) % TIME_ENTRY.size == 0 and (
            not entries or entries[-1].offset >= base_offset
        )
        yield _sanity(path, is_sane, entries[-1].offset if entries else base_offset, base_offset)
        return
    positions = list(_written(offset_entries(base_offset, offset_index or b""), base_offset))
    findings = _TimeFindings(path)
    before = NO_TIMESTAMP
    for number, entry in enumerate(entries):
        if entry.offset == base_offset and number > 0:
            break
        if log is not None:
            start = max(
                (each.position for each in positions if each.offset <= entry.offset), default=0
            )
            findings.compare(entry, log, start, before)
        if scrutiny is Scrutiny.SHOW:
            fields: dict[str, Json] = {"timestamp": entry.timestamp, "offset": entry.offset}
            yield DumpRow("timeIndexEntry", words_of(fields), fields)
        before = entry.timestamp
    yield from findings.rows()


def transaction_index_rows(index: bytes) -> Iterator[DumpRow]:
    """Yield the aborted transactions."""
    try:
        for entry in parse_transaction_index(index):
            fields: dict[str, Json] = {
                "version": TRANSACTION_INDEX_VERSION,
                "producerId": entry.producer_id,
                "firstOffset": entry.first_offset,
                "lastOffset": entry.last_offset,
                "lastStableOffset": entry.last_stable_offset,
            }
            yield DumpRow("abortedTransaction", words_of(fields), fields)
    except MalformedMessage as malformed:
        yield wrong(str(malformed))


def offset_entries(base_offset: int, index: bytes) -> list[OffsetEntry]:
    """Return all complete entries, including the zeros of a preallocated index."""
    return [
        OffsetEntry(base_offset + relative, position)
        for relative, position in OFFSET_ENTRY.iter_unpack(_whole(index, OFFSET_ENTRY.size))
    ]


class _TimeFindings:
    """Contradictions between a log and its time index."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mismatches: list[tuple[int, int]] = []
        self._unordered: list[tuple[int, int]] = []
        self._not_found: list[tuple[int, int]] = []

    def compare(self, entry: TimeEntry, log: Bytes, start: int, before: int) -> None:
        """Find the batch that ends at the entry's offset, and its newest record."""
        batch = _batch_from(log, start, entry.offset)
        if batch is None or batch.last_offset != entry.offset:
            self._not_found.append((entry.offset, -1 if batch is None else batch.last_offset))
            return
        try:
            newest = max((record.timestamp for record in batch.records()), default=NO_TIMESTAMP)
        except MalformedMessage:
            newest = NO_TIMESTAMP
        if newest != entry.timestamp:
            self._mismatches.append((entry.timestamp, newest))
        if before >= entry.timestamp:
            self._unordered.append((entry.timestamp, before))

    def rows(self) -> Iterator[DumpRow]:
        """Yield the findings in the order of Kafka's tool."""
        if self._mismatches:
            yield DumpRow(
                "heading",
                f"Found timestamp mismatch in :{self._path.absolute()}",
                {},
                Severity.WRONG,
            )
        for indexed, logged in self._mismatches:
            yield wrong(
                f"  Index timestamp: {indexed}, log timestamp: {logged}",
                indexTimestamp=indexed,
                logTimestamp=logged,
            )
        if self._unordered:
            yield DumpRow(
                "heading",
                f"Found out of order timestamp in :{self._path.absolute()}",
                {},
                Severity.WRONG,
            )
        for indexed, before in self._unordered:
            yield wrong(
                f"  Index timestamp: {indexed}, Previously indexed timestamp: {before}",
                indexTimestamp=indexed,
                previousTimestamp=before,
            )
        if self._not_found:
            yield DumpRow(
                "heading",
                "The following indexed offsets are not found in the log.",
                {},
                Severity.WRONG,
            )
        for indexed, found in self._not_found:
            yield wrong(
                f"Indexed offset: {indexed}, found log offset: {found}",
                indexOffset=indexed,
                logOffset=found,
            )


def _written(entries: list[OffsetEntry], base_offset: int) -> Iterator[OffsetEntry]:
    """Yield the entries up to the zeros that an index has after an unclean shutdown."""
    for number, entry in enumerate(entries):
        if entry.offset == base_offset and number > 0:
            return
        yield entry


def _sanity(path: Path, is_sane: bool, last_offset: int, base_offset: int) -> DumpRow:
    if is_sane:
        return DumpRow("sanity", f"{path} passed sanity check.", {"isSane": True})
    return wrong(
        f"{path} is corrupt: its size is odd, or its last offset {last_offset} is below the base "
        f"offset {base_offset}",
        isSane=False,
    )


def _whole(index: bytes, entry_bytes: int) -> bytes:
    return index[: len(index) // entry_bytes * entry_bytes]


def _last_offset_at(log: Bytes, position: int) -> int | None:
    """Return the last offset of the batch at a position, None if there is no batch."""
    if not 0 <= position < len(log):
        return None
    try:
        return open_batch(log, position).last_offset
    except MalformedMessage:
        return None


def _batch_from(log: Bytes, position: int, offset: int) -> AnyBatch | None:
    """Return the first batch from a position on that reaches an offset."""
    while 0 <= position < len(log):
        try:
            batch = open_batch(log, position)
        except MalformedMessage:
            return None
        if batch.last_offset >= offset:
            return batch
        position += batch.size_bytes
    return None
