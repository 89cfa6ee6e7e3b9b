"""How much work it is to look through records: estimated from headers and frames, before anything is unpacked.

A block of a kilobyte may hold a megabyte, and a megabyte may hold 150,000 records: to look through them takes longer than a client should wait for
another one. What is more than a little is therefore looked through in a thread, on every path: Produce, searches by timestamp, conversion for old
consumers, compaction. A producer may write anything into a header, so that the estimates are upper bounds where that is affordable.
Source: the handler threads of Apache Kafka (KafkaRequestHandlerPool, LogCleaner), in which all of this happens.
"""

from typing import Final

from protocol.batches import COMPRESSION_MASK, HEADER_SIZE_BYTES, MAGIC, MAGIC_POSITION, RecordBatch
from protocol.compression import Bytes, Compression, estimated_plain_bytes
from protocol.malformed_batches import MalformedBatch
from protocol.message_sets import AnyBatch, split_any_batches

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, both deltas, two sizes and the number of headers, a byte each."""
LOOKED_THROUGH_BYTES_MAX: Final = 128 * 1024
"""So much is looked through record by record on the loop: at most 18,700 records, which take 20 to 60 ms."""
BELIEVED_BYTES_MAX: Final = 8 * 1024
"""So many bytes of gzip are believed together what they say of their sizes: if that is a lie, they hold 8 MB, which takes 20 ms to unpack."""
BELIEVED_COST: Final = LOOKED_THROUGH_BYTES_MAX // BELIEVED_BYTES_MAX
"""A byte of gzip counts as so many at least: what is believed is bounded wherever work is. Of several members only the last one says its size."""
_ATTRIBUTES_POSITION: Final = 22
_RECORD_COUNT_POSITION: Final = 57


def produced_work(records: Bytes | None) -> tuple[int, int]:
    """Return the bytes that one batch of format 2 may hold when it is unpacked, and how many of them a walk over its records may look at.

    A walk looks at each record once, however large it is, and unpacks the batch before that. Both are 0 for what is no batch of this format.
    """
    if records is None or len(records) < HEADER_SIZE_BYTES or records[MAGIC_POSITION] != MAGIC:
        return 0, 0
    codec = records[_ATTRIBUTES_POSITION] & COMPRESSION_MASK
    count_bytes = RECORD_BYTES_MIN * max(int.from_bytes(records[_RECORD_COUNT_POSITION:HEADER_SIZE_BYTES], signed=True), 0)
    if not codec:
        return len(records), min(count_bytes, len(records))
    if codec > Compression.ZSTD:
        return 0, 0
    plain_bytes = max(estimated_plain_bytes(Compression(codec), memoryview(records)[HEADER_SIZE_BYTES:]), count_bytes)
    return plain_bytes, plain_bytes


def believed_bytes(records: Bytes | None) -> int:
    """Return the size of a batch of format 2 whose estimate rests on what it says of itself, which may be wrong: a short one of gzip."""
    if records is None or len(records) < HEADER_SIZE_BYTES or records[_ATTRIBUTES_POSITION] & COMPRESSION_MASK != Compression.GZIP:
        return 0
    return len(records)


def takes_long(data: Bytes | None, bytes_max: int = LOOKED_THROUGH_BYTES_MAX) -> bool:
    """Tell whether the records of batches and messages, one after another, are more than is looked through on the loop."""
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
        pass  # what lies behind it is not looked at
    return False


def batch_work(batch: AnyBatch) -> int:
    """Return how many bytes must be looked through to see every record of a batch or message, as far as that can be known beforehand."""
    size_bytes: int = batch.size_bytes
    believed_cost = size_bytes * BELIEVED_COST if batch.attributes & COMPRESSION_MASK == Compression.GZIP else 0
    return max(_announced_work(batch, size_bytes), believed_cost)


def _announced_work(batch: AnyBatch, size_bytes: int) -> int:
    if isinstance(batch, RecordBatch):
        return produced_work(batch.view())[0]
    if not batch.attributes & COMPRESSION_MASK:
        return size_bytes
    try:
        value = batch.value
        return size_bytes + (0 if value is None else estimated_plain_bytes(batch.compression, memoryview(value)))
    except MalformedBatch:
        return size_bytes
