"""Cache of the latest fetched batches until they are committed: they usually commit with the next response,
so the log need not be read back."""

from collections import deque
from typing import Final

from kraftsim.core.raft.effects import WriteFetched
from protocol.batches import RecordBatch

BYTES_MAX: Final = 256 * 1024
BATCHES_MAX: Final = 64
"""Batches beyond this limit are read from disk when they commit."""


class FreshBatches:
    """The gapless end of the log, or nothing."""

    def __init__(self) -> None:
        self._batches: deque[RecordBatch] = deque()

    def keep(self, written: WriteFetched) -> None:
        """Cache the batch just written, unless too many are cached."""
        if len(self._batches) >= BATCHES_MAX or len(written.records) > BYTES_MAX:
            self._batches.clear()
        if len(written.records) <= BYTES_MAX:
            self._batches.extend(written.batches)

    def take(self, offset: int, committed: int) -> tuple[RecordBatch, ...]:
        """Return the committed batches from an offset on, up to the first one that is not cached, such as
        those written by this replica as leader."""
        batches = self._batches
        while batches and batches[0].base_offset < offset:
            batches.popleft()
        found: list[RecordBatch] = []
        while batches and batches[0].base_offset == offset and batches[0].next_offset <= committed:
            offset = batches[0].next_offset
            found.append(batches.popleft())
        return tuple(found)

    def clear(self) -> None:
        """The log was truncated or replaced."""
        self._batches.clear()
