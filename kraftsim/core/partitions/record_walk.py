"""A quick walk over the records of a batch: each must end where the next one begins, and there must be as many as the header says.

The checksum covers what a network breaks; this covers what a client built wrong, without unpacking a single record. (Kafka unpacks them all.)
Source: DefaultRecord.readFrom, LogValidator.
"""

from typing import Final

from protocol.batches import COMPRESSION_MASK, HEADER_SIZE_BYTES, RecordBatch
from protocol.compression import Compression, decompress
from protocol.malformed_batches import MalformedRecord
from protocol.records import read_varint

VARINT_BYTES_MAX: Final = 10


def why_records_do_not_add_up(batch: RecordBatch) -> str | None:
    """Return what is wrong with the lengths of the records, or None. Raises UndecodableRecords for bytes that the codec cannot read."""
    body = memoryview(batch.buffer)[batch.position + HEADER_SIZE_BYTES : batch.position + batch.size_bytes]
    data = body if batch.attributes & COMPRESSION_MASK == Compression.NONE else decompress(batch.compression, body)
    try:
        end_position = _walk(data, batch.record_count)
    except (IndexError, MalformedRecord):
        return f"{batch.record_count} records were announced, the bytes end inside one"
    return None if end_position == len(data) else f"the records end at byte {end_position} of {len(data)}"


def _walk(data: bytes | memoryview, record_count: int) -> int:
    """Return the position after the last record. Raises IndexError when the data is too short. Most lengths are varints of one or two bytes."""
    position = 0
    for _ in range(record_count):
        first = data[position]
        if first < 128:
            position += 1
        else:
            second = data[position + 1]
            if second < 128:
                first = first & 0x7F | second << 7
                position += 2
            else:
                size_bytes, varint_bytes = read_varint(bytes(data[position : position + VARINT_BYTES_MAX]), 0)
                first = size_bytes << 1 if size_bytes >= 0 else 1
                position += varint_bytes
        if first & 1 or not first:
            raise MalformedRecord("a record of no or negative length")
        position += first >> 1
    return position
