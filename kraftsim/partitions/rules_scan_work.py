"""Estimates of the work to scan records, before anything is decompressed.

A kilobyte may decompress to a megabyte, and a megabyte may have 150,000 records: scanning them
takes longer than other clients should wait. Larger scans therefore run in a thread, on every path:
Produce, searches by timestamp, down-conversion for old consumers, compaction. A producer may write
anything into a header, so the estimates are upper bounds where that is affordable. Apache Kafka
scans in the threads of KafkaRequestHandlerPool and LogCleaner.
"""

from typing import Final

from protocol.records.batches import (
    COMPRESSION_MASK,
    HEADER_SIZE_BYTES,
    MAGIC,
    MAGIC_POSITION,
    RecordBatch,
)
from protocol.records.message_sets import AnyBatch, split_any_batches
from protocol.records.record import Bytes, Compression, MalformedBatch, estimated_plain_bytes

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, both deltas, two sizes and the header count, at least a byte each."""
LOOKED_THROUGH_BYTES_MAX: Final = 128 * 1024
"""Up to this size records are scanned on the event loop: at most 18,700 records, which take 20 to
60 ms.
"""
BELIEVED_BYTES_MAX: Final = 8 * 1024
"""The total of gzip bytes whose declared sizes are trusted: if wrong, they hold 8 MB, which takes
20 ms to decompress.
"""
BELIEVED_COST: Final = LOOKED_THROUGH_BYTES_MAX // BELIEVED_BYTES_MAX
"""A gzip byte counts as at least this many: it bounds the error of declared sizes.

Of several members only the last one's size is visible.
"""
_ATTRIBUTES_POSITION: Final = 22
_RECORD_COUNT_POSITION: Final = 57


def produced_work(records: Bytes | None) -> tuple[int, int]:
    """Return the upper bound of a format-2 batch's decompressed size, and of the bytes that a walk
    over its records reads.

    A walk reads each record's length once, whatever its size, after decompressing the batch. Both
    are 0 for other formats.
    """
    if records is None or len(records) < HEADER_SIZE_BYTES or records[MAGIC_POSITION] != MAGIC:
        return 0, 0
    codec = records[_ATTRIBUTES_POSITION] & COMPRESSION_MASK
    count_bytes = RECORD_BYTES_MIN * max(
        int.from_bytes(records[_RECORD_COUNT_POSITION:HEADER_SIZE_BYTES], signed=True), 0
    )
    if not codec:
        return len(records), min(count_bytes, len(records))
    if codec > Compression.ZSTD:
        return 0, 0
    plain_bytes = max(
        estimated_plain_bytes(Compression(codec), memoryview(records)[HEADER_SIZE_BYTES:]),
        count_bytes,
    )
    return plain_bytes, plain_bytes


def believed_bytes(records: Bytes | None) -> int:
    """Return the size of a format-2 batch whose estimate relies on its declared size, which may be
    wrong: a short gzip one.
    """
    if (
        records is None
        or len(records) < HEADER_SIZE_BYTES
        or records[_ATTRIBUTES_POSITION] & COMPRESSION_MASK != Compression.GZIP
    ):
        return 0
    return len(records)


def takes_long(data: Bytes | None, bytes_max: int = LOOKED_THROUGH_BYTES_MAX) -> bool:
    """Return whether scanning the records of these batches and messages exceeds the limit for the
    event loop.
    """
    if not data:
        return False
    if len(data) > bytes_max:
        return True
    left_bytes = bytes_max
    try:
        for batch in split_any_batches(data):
            left_bytes -= batch_work(batch)
            if left_bytes < 0:
                return True
    except MalformedBatch:
        pass  # the rest is not scanned
    return False


def batch_work(batch: AnyBatch) -> int:
    """Return the number of bytes to scan for all records of a batch or message, as far as known in
    advance.
    """
    size_bytes: int = batch.size_bytes
    believed_cost = (
        size_bytes * BELIEVED_COST if batch.attributes & COMPRESSION_MASK == Compression.GZIP else 0
    )
    return max(_announced_work(batch, size_bytes), believed_cost)


def _announced_work(batch: AnyBatch, size_bytes: int) -> int:
    if isinstance(batch, RecordBatch):
        return produced_work(batch.view())[0]
    if not batch.attributes & COMPRESSION_MASK:
        return size_bytes
    try:
        value = batch.value
        return size_bytes + (
            0 if value is None else estimated_plain_bytes(batch.compression, memoryview(value))
        )
    except MalformedBatch:
        return size_bytes
