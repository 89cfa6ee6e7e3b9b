"""Iterates over the batches of a segment file from a position on, in windows, without loading the
whole file.

The iteration ends at invalid data: a tail torn by a crash, or corrupted bytes.

Source: org.apache.kafka.storage.internals.log.LogSegment.recover, FileLogInputStream.
"""

from collections.abc import Iterator
from struct import Struct

from kraftsim.world.interface import File
from protocol.records.batches import (
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    RecordBatch,
    split_batches,
)
from protocol.records.record import MalformedBatch

WINDOW_BYTES = 1 << 20
_LENGTH = Struct(">i").unpack_from
_LENGTH_POSITION = 8
_BATCH_START = Struct(">qi").unpack_from
_LAST_OFFSET_DELTA = Struct(">i").unpack_from
_LAST_OFFSET_DELTA_POSITION = 23


class SegmentScan:
    """Iterate to get the batches in order. Afterwards `end_position` is the end of the last valid
    batch, `why_invalid` the reason why the rest is invalid.
    """

    def __init__(
        self,
        file: File,
        position: int = 0,
        *,
        verify_from_offset: int | None = None,
        next_offset: int = 0,
    ) -> None:
        """Checksums are verified from `verify_from_offset` on (None: never); offsets must not be
        below `next_offset`.
        """
        self._file = file
        self._verify_from_offset = verify_from_offset
        self._next_offset = next_offset
        self.end_position = position
        self.why_invalid: str | None = None

    def __iter__(self) -> Iterator[RecordBatch]:
        window_bytes = WINDOW_BYTES
        while data := self._file.read(self.end_position, window_bytes):
            start = self.end_position
            yield from self._good_batches(data)
            if self.why_invalid is not None:
                return
            if self.end_position > start:
                window_bytes = WINDOW_BYTES
                continue
            needed = self._announced_bytes(data)
            if needed <= len(data) or len(data) < window_bytes:
                self.why_invalid = f"{len(data)} bytes of a batch that has {needed}"
                return
            window_bytes = needed

    def _good_batches(self, data: bytes) -> Iterator[RecordBatch]:
        try:
            for batch in split_batches(data):
                self.why_invalid = self._wrong_with(batch)
                if self.why_invalid is not None:
                    return
                self.end_position += batch.size_bytes
                self._next_offset = batch.next_offset
                yield batch
        except MalformedBatch as malformed:
            self.why_invalid = malformed.reason

    def _wrong_with(self, batch: RecordBatch) -> str | None:
        if batch.base_offset < self._next_offset or batch.last_offset_delta < 0:
            return f"a batch at offset {batch.base_offset} where {self._next_offset} was due"
        if (
            self._verify_from_offset is not None
            and batch.next_offset > self._verify_from_offset
            and not batch.crc_is_valid()
        ):
            return f"the checksum of the batch at offset {batch.base_offset} is wrong"
        return None

    @staticmethod
    def _announced_bytes(data: bytes) -> int:
        """Return the size field of the batch at the start of the data."""
        if len(data) < _LENGTH_POSITION + 4:
            return LENGTH_OVERHEAD_BYTES
        length: int = _LENGTH(data, _LENGTH_POSITION)[0]
        return max(length, 0) + LENGTH_OVERHEAD_BYTES


def whole_batches(data: bytes, end_offset: int) -> tuple[int, int]:
    """Return the size of the complete batches in data that start below end_offset, and the offset
    after them.
    """
    position, next_offset, size_bytes = 0, -1, len(data)
    while position + HEADER_SIZE_BYTES <= size_bytes:
        base_offset, length = _BATCH_START(data, position)
        following = position + length + LENGTH_OVERHEAD_BYTES
        if following > size_bytes or base_offset >= end_offset:
            break
        next_offset = (
            base_offset + _LAST_OFFSET_DELTA(data, position + _LAST_OFFSET_DELTA_POSITION)[0] + 1
        )
        position = following
    return position, next_offset
