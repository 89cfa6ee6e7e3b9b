"""What a replica fetched last, kept at hand until it is committed: mostly that is told with the same answer, and nothing need be read back."""

from collections import deque
from typing import Final

from kraftsim.core.raft.effects import WriteFetched
from protocol.batches import RecordBatch

BYTES_MAX: Final = 256 * 1024
BATCHES_MAX: Final = 64
"""More than that waits for its commit on the disk alone."""


class FreshBatches:
    """The end of the log, without a gap, or nothing."""

    def __init__(self) -> None:
        self._batches: deque[RecordBatch] = deque()

    def keep(self, written: WriteFetched) -> None:
        """Keep what was written just now, if it is not much."""
        if len(self._batches) >= BATCHES_MAX or len(written.records) > BYTES_MAX:
            self._batches.clear()
        if len(written.records) <= BYTES_MAX:
            self._batches.extend(written.batches)

    def take(self, offset: int, committed: int) -> tuple[RecordBatch, ...]:
        """Return the committed batches from an offset on, up to the first one that is not at hand, as what this replica wrote as a leader."""
        batches = self._batches
        while batches and batches[0].base_offset < offset:
            batches.popleft()
        found: list[RecordBatch] = []
        while batches and batches[0].base_offset == offset and batches[0].next_offset <= committed:
            offset = batches[0].next_offset
            found.append(batches.popleft())
        return tuple(found)

    def clear(self) -> None:
        """The log was cut, or another took its place."""
        self._batches.clear()
