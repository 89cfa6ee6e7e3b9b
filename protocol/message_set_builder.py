"""Builds message sets, formats 0 and 1: as producers before 0.11 sent them, and as a broker returns
them to such consumers.

Uncompressed, every record is a message of its own; compressed, all are wrapped into one. The
wrapper has the offset of the last record and the timestamp of the newest one.
Source: MemoryRecordsBuilder, LegacyRecord, KIP-31, KIP-32; verified against Apache Kafka 3.9.1.
"""

import zlib
from collections.abc import Iterable
from typing import Final

from protocol.batches import LENGTH_OVERHEAD_BYTES, LOG_APPEND_TIME_BIT
from protocol.compression import Compression, compress
from protocol.message_sets import BEFORE_MAGIC, NEWEST_OLD_MAGIC, SIZE, TIMESTAMP
from protocol.records import NO_TIMESTAMP, UNASSIGNED_OFFSET, Record

NULL: Final = SIZE.pack(-1)


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    append_timestamp: int | None = None,
) -> bytes:
    """Return a message set; records with an offset keep it, the others continue from the previous
    one. No records give no bytes.

    With an append timestamp every message has LogAppendTime (format 1). Records have no headers:
    the format does not support them.
    """
    assert 0 <= magic <= NEWEST_OLD_MAGIC, "a message set has format 0 or 1"
    assert compression is not Compression.ZSTD, "zstd came after message sets"
    stamp = LOG_APPEND_TIME_BIT if magic and append_timestamp is not None else 0
    relative_to = base_offset if magic and compression is not Compression.NONE else 0
    chunks: list[bytes] = []
    next_offset, max_timestamp = base_offset, NO_TIMESTAMP
    for offset, timestamp, key, value, headers in records:
        assert not headers, "message sets have no headers"
        if offset == UNASSIGNED_OFFSET:
            offset = next_offset
        assert offset >= next_offset, (
            "offsets grow inside a message set and start at its base offset"
        )
        if append_timestamp is not None:
            timestamp = append_timestamp
        chunks.append(build_message(magic, offset - relative_to, stamp, timestamp, key, value))
        next_offset, max_timestamp = offset + 1, max(timestamp, max_timestamp)
    if compression is Compression.NONE or not chunks:
        return b"".join(chunks)
    packed = compress(compression, b"".join(chunks), magic)
    return build_message(magic, next_offset - 1, compression | stamp, max_timestamp, None, packed)


def build_message(
    magic: int, offset: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    """Return one message: a record, or a wrapper if the attributes contain a codec.

    `offset` is the offset field.
    """
    covered = b"".join(
        (
            bytes((magic, attributes)),
            TIMESTAMP.pack(timestamp) if magic else b"",
            NULL if key is None else SIZE.pack(len(key)),
            key or b"",
            NULL if value is None else SIZE.pack(len(value)),
            value or b"",
        )
    )
    return (
        BEFORE_MAGIC.pack(
            offset, BEFORE_MAGIC.size - LENGTH_OVERHEAD_BYTES + len(covered), zlib.crc32(covered)
        )
        + covered
    )
