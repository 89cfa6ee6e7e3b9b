"""Down-conversion of batches for consumers before 0.11: message sets of format 1 (0.10) or 0
(older), as a broker does for Fetch 0 to 3.

Headers, producer ids and leader epochs are lost, and transaction markers are left out: an old
consumer sees aborted records, too.
Source: KIP-98, KIP-283 (conversion in pieces, into a response whose size was sent before);
RecordsUtil, LazyDownConversionRecords; verified against Apache Kafka 3.9.1.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from protocol.errors import ErrorCode
from protocol.records.batches import (
    COMPRESSION_MASK,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME_BIT,
    RecordBatch,
)
from protocol.records.batches import HEADER_SIZE_BYTES as BATCH_BYTES_MIN
from protocol.records.message_sets import (
    NEWEST_OLD_MAGIC,
    OFFSET_AND_SIZE,
    AnyBatch,
    build_message_set,
    split_any_batches,
)
from protocol.records.record import NO_TIMESTAMP, Bytes, Compression, Record, UnconvertibleBatch

PIECE_BYTES_MAX: Final = 128 * 1024
"""The number of bytes that are read before they are converted and sent."""
FILLER_OFFSET: Final = -1


def down_convert(batches: Iterable[AnyBatch], *, to_magic: int, first_offset: int) -> bytes:
    """Return message sets of format 0 or 1. Data that is already in that format stays unchanged.

    Records before `first_offset`, the fetch offset, are left out of uncompressed batches. Raises
    UnconvertibleBatch, for zstd with UNSUPPORTED_COMPRESSION_TYPE, and the errors of reading
    records.
    """
    assert 0 <= to_magic <= NEWEST_OLD_MAGIC, "only to formats before 2"
    return b"".join(_converted(batch, to_magic, first_offset) for batch in batches)


def down_convert_in_pieces(data: Bytes, *, to_magic: int, first_offset: int) -> bytes:
    """Return the records field of a Fetch response: converted batches, truncated or padded to the
    size that the response announced.

    That is the size of the data before conversion, and at least that of its first batch after it.
    The padding is a message whose size exceeds the rest: old consumers treat it as a partial one.
    Raises as `down_convert` does, but only until something is converted: the rest waits for the
    next fetch.
    """
    batches = list(split_any_batches(data))
    first = next(
        (
            piece
            for batch in batches
            if (piece := down_convert((batch,), to_magic=to_magic, first_offset=first_offset))
        ),
        b"",
    )
    if first:
        left = max(len(data), len(first))
        # Kafka resumes at the second batch, even if the first was a marker and the second was
        # converted: then the second is returned twice.
        pieces = _pieces(batches[1:], to_magic, first_offset)
    else:
        left = LENGTH_OVERHEAD_BYTES if batches else 0
        pieces = iter(())
    sent: list[bytes] = []
    piece = first
    while left:
        piece = (piece or next(pieces, b"") or _filler(left))[:left]
        sent.append(piece)
        left -= len(piece)
        piece = b""
    return b"".join(sent)


def _pieces(batches: list[AnyBatch], to_magic: int, first_offset: int) -> Iterator[bytes]:
    """Yield the converted batches, grouped as they were read; nothing after the first one that
    cannot be converted.
    """
    together: list[AnyBatch] = []
    size_bytes = 0
    for batch in (*batches, None):
        if batch is None or (together and size_bytes + batch.size_bytes > PIECE_BYTES_MAX):
            try:
                piece = down_convert(together, to_magic=to_magic, first_offset=first_offset)
            except UnconvertibleBatch as refused:
                if refused.error_code is not ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
                    raise
                return
            if piece:
                yield piece
            together, size_bytes = [], 0
        if batch is not None:
            together.append(batch)
            size_bytes += batch.size_bytes


def _filler(left: int) -> bytes:
    """Return an incomplete message: its size is one byte more than what is left."""
    head = OFFSET_AND_SIZE.pack(FILLER_OFFSET, max(left + 1, BATCH_BYTES_MIN))
    return head.ljust(min(left + 1, PIECE_BYTES_MAX), b"\0")


def _converted(batch: AnyBatch, to_magic: int, first_offset: int) -> bytes | memoryview:
    if isinstance(batch, RecordBatch) and batch.is_control:
        return b""
    if batch.attributes & COMPRESSION_MASK == Compression.ZSTD:
        raise UnconvertibleBatch(
            "zstd came after message sets", batch.position, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )
    if batch.magic <= to_magic:
        return batch.view()
    is_compressed = batch.compression is not Compression.NONE
    records = [
        record._replace(headers=())
        for record in batch.records()
        if is_compressed or record.offset >= first_offset
    ]
    if not records:
        return b""
    require_convertible(records, batch.position)
    return build_message_set(
        records,
        magic=to_magic,
        base_offset=records[0].offset,
        compression=batch.compression,
        append_timestamp=batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else None,
    )


def require_convertible(records: Iterable[Record], position: int) -> None:
    """Raise UnconvertibleBatch for records that no batch can contain: offsets that do not increase,
    timestamps before 1970.
    """
    last_offset: int | None = None
    for record in records:
        if last_offset is not None and record.offset <= last_offset:
            raise UnconvertibleBatch(f"offset {record.offset} behind {last_offset}", position)
        if record.timestamp < NO_TIMESTAMP:
            raise UnconvertibleBatch(f"timestamp {record.timestamp}", position)
        last_offset = record.offset
