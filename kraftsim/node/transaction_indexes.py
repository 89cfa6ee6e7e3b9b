"""The transaction indexes of one log: which transactions were aborted, in a file beside the segment that holds the marker.

Readers of committed data are told of those that touch what they read. A segment without aborted transactions has no such file.

Source: org.apache.kafka.storage.internals.log.TransactionIndex, LogSegment.collectAbortedTxns, UnifiedLog.collectAbortedTransactions.
"""

from collections.abc import Sequence

from kraftsim.node.segment_files import SegmentFiles
from protocol.disk.malformed_file import MalformedFile
from protocol.disk.transaction_index import AbortedTransaction, build_transaction_index, parse_transaction_index


class TransactionIndexes:
    """Entries by segment, in the order of their markers; read from disk when they are first asked for."""

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files
        self._entries: dict[int, list[AbortedTransaction]] = {}

    def add(self, base_offset: int, aborted: AbortedTransaction) -> None:
        """The marker of an aborted transaction is in this segment. Raises OSError."""
        entries = self._of(base_offset)
        assert not entries or entries[-1].last_offset < aborted.last_offset, "markers come in order"
        entries.append(aborted)
        self._files.append_transactions(base_offset, build_transaction_index([aborted]))

    def cut(self, base_offset: int, end_offset: int) -> None:
        """Forget the transactions of a segment whose markers are at end_offset or behind it. Raises OSError."""
        entries = self._of(base_offset)
        kept = [each for each in entries if each.last_offset < end_offset]
        if len(kept) < len(entries):
            self._entries[base_offset] = kept
            self._files.replace_transactions(base_offset, build_transaction_index(kept))

    def forget(self, base_offset: int) -> None:
        """A segment begins here, maybe after another one that did: its file says what there is."""
        self._entries.pop(base_offset, None)

    def replace(self, base_offsets: Sequence[int], aborted: Sequence[AbortedTransaction]) -> None:
        """One segment stands where there were several, whose first offset it has; its file says this."""
        for base_offset in base_offsets:
            self.forget(base_offset)
        self._entries[base_offsets[0]] = list(aborted)

    def remove_damaged(self, base_offsets: Sequence[int]) -> int | None:
        """Delete the indexes that cannot be believed, and return where the first of their segments begins: from there they are to be made again."""
        damaged = [base_offset for base_offset in base_offsets if not self._is_sound(base_offset)]
        for base_offset in damaged:
            self._files.replace_transactions(base_offset, b"")
        return min(damaged, default=None)

    def _is_sound(self, base_offset: int) -> bool:
        try:
            entries = parse_transaction_index(self._files.read_transactions(base_offset))
        except MalformedFile:
            return False
        return all(base_offset <= entry.last_offset and entry.first_offset <= entry.last_offset for entry in entries)

    def between(self, base_offsets: Sequence[int], first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from first_offset on and below end_offset.

        `base_offsets`: the segments from the one that holds first_offset on. An entry says up to where everything was over when it was written: what
        comes after it began behind that.
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
