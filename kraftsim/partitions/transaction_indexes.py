"""The transaction indexes of one log: the aborted transactions, in a file beside the segment that
contains the marker.

Fetches of read_committed consumers return those that overlap the fetched range. A segment without
aborted transactions has no such file.

Source: org.apache.kafka.storage.internals.log.TransactionIndex, LogSegment.collectAbortedTxns,
UnifiedLog.collectAbortedTransactions.
"""

from collections.abc import Sequence

from kraftsim.partitions.segment_files import SegmentFiles
from protocol.malformed import MalformedFile
from protocol.storage.indexes import (
    AbortedTransaction,
    build_transaction_index,
    parse_transaction_index,
)


class TransactionIndexes:
    """Entries by segment, in the order of their markers; read from disk on first use."""

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files
        self._entries: dict[int, list[AbortedTransaction]] = {}

    def add(self, base_offset: int, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction with its marker in this segment. Raises OSError."""
        entries = self._of(base_offset)
        assert not entries or entries[-1].last_offset < aborted.last_offset, "markers come in order"
        entries.append(aborted)
        self._files.append_transactions(base_offset, build_transaction_index([aborted]))

    def truncate(self, base_offset: int, end_offset: int) -> None:
        """Remove the transactions of a segment whose markers are at end_offset or later.

        Raises OSError.
        """
        entries = self._of(base_offset)
        kept = [each for each in entries if each.last_offset < end_offset]
        if len(kept) < len(entries):
            self._entries[base_offset] = kept
            self._files.replace_transactions(base_offset, build_transaction_index(kept))

    def forget(self, base_offset: int) -> None:
        """A segment starts here, possibly in place of an earlier one: its file is read again."""
        self._entries.pop(base_offset, None)

    def replace(self, base_offsets: Sequence[int], aborted: Sequence[AbortedTransaction]) -> None:
        """One segment replaces several, and has the base offset of the first; its file contains
        these entries.
        """
        for base_offset in base_offsets:
            self.forget(base_offset)
        self._entries[base_offsets[0]] = list(aborted)

    def remove_damaged(self, base_offsets: Sequence[int]) -> int | None:
        """Delete damaged indexes, and return the base offset of the first of their segments: they
        must be rebuilt from there.
        """
        damaged = [base_offset for base_offset in base_offsets if not self._is_sound(base_offset)]
        for base_offset in damaged:
            self._files.replace_transactions(base_offset, b"")
        return min(damaged, default=None)

    def _is_sound(self, base_offset: int) -> bool:
        try:
            entries = parse_transaction_index(self._files.read_transactions(base_offset))
        except MalformedFile:
            return False
        return all(
            base_offset <= entry.last_offset and entry.first_offset <= entry.last_offset
            for entry in entries
        )

    def between(
        self, base_offsets: Sequence[int], first_offset: int, end_offset: int
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from first_offset on and below end_offset.

        `base_offsets`: the segments from the one that contains first_offset on. An entry contains
        the last stable offset at its marker: transactions of later entries started at or after
        that.
        """
        found: list[AbortedTransaction] = []
        for base_offset in base_offsets:
            for entry in self._of(base_offset):
                if entry.last_offset >= first_offset and entry.first_offset < end_offset:
                    found.append(entry)
                if entry.last_stable_offset >= end_offset:
                    return found
        return found

    def _of(self, base_offset: int) -> list[AbortedTransaction]:
        entries = self._entries.get(base_offset)
        if entries is None:
            entries = self._entries[base_offset] = self._read(base_offset)
        return entries

    def _read(self, base_offset: int) -> list[AbortedTransaction]:
        try:
            return parse_transaction_index(self._files.read_transactions(base_offset))
        except MalformedFile:
            return []
