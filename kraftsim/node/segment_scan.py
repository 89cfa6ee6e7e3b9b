"""Walks over the batches of a segment file from a position on, in windows, without holding the file in memory.

What cannot be a batch ends the walk: a tail that was torn when the process died, or bytes that the disk gave back wrong.

Source: org.apache.kafka.storage.internals.log.LogSegment.recover, FileLogInputStream.
"""

from collections.abc import Iterator
from struct import Struct

from kraftsim.world.interface import File
from protocol.batches import HEADER_SIZE_BYTES, LENGTH_OVERHEAD_BYTES, RecordBatch, split_batches
from protocol.malformed_batches import MalformedBatch

WINDOW_BYTES = 1 << 20
_LENGTH = Struct(">i").unpack_from
_LENGTH_POSITION = 8
_BATCH_START = Struct(">qi").unpack_from
_LAST_OFFSET_DELTA = Struct(">i").unpack_from
_LAST_OFFSET_DELTA_POSITION = 23


class SegmentScan:
    """Iterate to get the batches in order. Afterwards `end_position` is where the last good batch ends, `why_cut` what is wrong with the rest."""

    def __init__(self, file: File, position: int = 0, *, verify_from_offset: int | None = None, next_offset: int = 0) -> None:
        """Checksums are looked at from `verify_from_offset` on (None: never); offsets must not go back behind `next_offset`."""
        self._file = file
        self._verify_from_offset = verify_from_offset
        self._next_offset = next_offset
        self.end_position = position
        self.why_cut: str | None = None

    def __iter__(self) -> Iterator[RecordBatch]:
        window_bytes = WINDOW_BYTES
        while data := self._file.read(self.end_position, window_bytes):
            start = self.end_position
            yield from self._good_batches(data)
            if self.why_cut is not None:
                return
            if self.end_position > start:
                window_bytes = WINDOW_BYTES
                continue
            needed = self._announced_bytes(data)
            if needed <= len(data) or len(data) < window_bytes:
                self.why_cut = f"{len(data)} bytes of a batch that has {needed}"
                return
            window_bytes = needed

    def _good_batches(self, data: bytes) -> Iterator[RecordBatch]:
        try:
            for batch in split_batches(data):
                self.why_cut = self._wrong_with(batch)
                if self.why_cut is not None:
                    return
                self.end_position += batch.size_bytes
                self._next_offset = batch.next_offset
                yield batch
        except MalformedBatch as malformed:
            self.why_cut = malformed.reason

    def _wrong_with(self, batch: RecordBatch) -> str | None:
        if batch.base_offset < self._next_offset or batch.last_offset_delta < 0:
            return f"a batch at offset {batch.base_offset} where {self._next_offset} was due"
        if self._verify_from_offset is not None and batch.next_offset > self._verify_from_offset and not batch.crc_is_valid():
            return f"the checksum of the batch at offset {batch.base_offset} is wrong"
        return None

    @staticmethod
    def _announced_bytes(data: bytes) -> int:
        """Return how many bytes the batch at the start of the data says it has."""
        if len(data) < _LENGTH_POSITION + 4:
            return LENGTH_OVERHEAD_BYTES
        length: int = _LENGTH(data, _LENGTH_POSITION)[0]
        return max(length, 0) + LENGTH_OVERHEAD_BYTES


def whole_batches(data: bytes, end_offset: int) -> tuple[int, int]:
    """Return how many bytes of data are whole batches that begin below end_offset, and the offset that follows them."""
    position, next_offset, size_bytes = 0, -1, len(data)
    while position + HEADER_SIZE_BYTES <= size_bytes:
        base_offset, length = _BATCH_START(data, position)
        following = position + length + LENGTH_OVERHEAD_BYTES
        if following > size_bytes or base_offset >= end_offset:
            break
        next_offset = base_offset + _LAST_OFFSET_DELTA(data, position + _LAST_OFFSET_DELTA_POSITION)[0] + 1
        position = following
    return position, next_offset
