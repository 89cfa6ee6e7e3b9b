"""A fast validation of a batch's record lengths: each must end where the next one begins, and their
number must match the header.

The checksum covers transmission errors; this covers clients that build invalid batches, without
decoding a record. (Kafka decodes all of them.)
Source: DefaultRecord.readFrom, LogValidator.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from protocol.batches import COMPRESSION_MASK, HEADER_SIZE_BYTES, RecordBatch
from protocol.compression import Compression, decompress_in_pieces
from protocol.malformed_batches import MalformedRecord
from protocol.records import read_varint

VARINT_BYTES_MAX: Final = 10
COMPARED_SIZE_MAX: Final = 8192
"""Up to this size the length of a record has at most two bytes."""
WALKED_TOGETHER: Final = 16
"""After this many records of one size, check whether more follow with the same size."""
FIRST_LOOK_AHEAD: Final = 16


def why_records_do_not_add_up(batch: RecordBatch) -> str | None:
    """Return the error of the record lengths, or None.

    Raises UndecodableRecords for bytes that cannot be decompressed.
    """
    body = memoryview(batch.buffer)[
        batch.position + HEADER_SIZE_BYTES : batch.position + batch.size_bytes
    ]
    if batch.attributes & COMPRESSION_MASK == Compression.NONE:
        return _why_not_whole(body, batch)
    pieces = decompress_in_pieces(batch.compression, body)
    first, second = next(pieces, b""), next(pieces, None)
    return (
        _why_not_whole(first, batch)
        if second is None
        else _why_not_whole_in_pieces(chain((first, second), pieces), batch)
    )


def _why_not_whole(data: bytes | memoryview, batch: RecordBatch) -> str | None:
    try:
        end_position = _walk(data, batch.record_count)
    except (IndexError, MalformedRecord):
        return f"{batch.record_count} records in the header, the bytes end inside one"
    return (
        None
        if end_position == len(data)
        else f"the records end at byte {end_position} of {len(data)}"
    )


def _why_not_whole_in_pieces(pieces: Iterator[bytes], batch: RecordBatch) -> str | None:
    """Check the lengths piece by piece: nothing after the first error, or the last record, is
    decompressed.
    """
    left, skipped_bytes, rest = batch.record_count, 0, b""
    for piece in pieces:
        if skipped_bytes >= len(piece):
            skipped_bytes -= len(piece)
            continue
        data, position, skipped_bytes = rest + piece[skipped_bytes:], 0, 0
        while left and len(data) - position >= VARINT_BYTES_MAX:
            try:
                size_bytes, position = read_varint(data, position)
            except (IndexError, MalformedRecord):
                size_bytes = 0
            if size_bytes <= 0:
                return f"{batch.record_count} records in the header, the bytes end inside one"
            position += size_bytes
            left -= 1
        rest = data[position:]
        skipped_bytes = max(position - len(data), 0)
        if not left and rest:
            return (
                f"the records end before byte {position + len(rest)} of the bytes decompressed "
                "so far"
            )
    try:
        is_whole = not skipped_bytes and _walk(rest, left) == len(rest)
    except (IndexError, MalformedRecord):
        is_whole = False
    return (
        None
        if is_whole
        else f"{batch.record_count} records in the header, the bytes end inside one"
    )


def _walk(data: bytes | memoryview, record_count: int) -> int:
    """Return the position after the last record.

    Raises IndexError if the data is too short. Most lengths are varints of one or two bytes.
    """
    position = 0
    left = record_count
    while left > 0:
        first_begin = begin = position
        walked = min(left, WALKED_TOGETHER)
        for _ in range(walked):
            begin = position
            first = data[position]
            if first < 128:
                position += 1
            else:
                second = data[position + 1]
                if second < 128:
                    first = first & 0x7F | second << 7
                    position += 2
                else:
                    size_bytes, varint_bytes = read_varint(
                        bytes(data[position : position + VARINT_BYTES_MAX]), 0
                    )
                    first = size_bytes << 1 if size_bytes >= 0 else 1
                    position += varint_bytes
            if first & 1 or not first:
                raise MalformedRecord("a record with an invalid length")
            position += first >> 1
        left -= walked
        size_bytes = position - begin
        if size_bytes <= COMPARED_SIZE_MAX and position - first_begin == walked * size_bytes:
            alike = _alike(data, begin, size_bytes, left)
            position += alike * size_bytes
            left -= alike
    return position


def _alike(data: bytes | memoryview, begin: int, size_bytes: int, count_max: int) -> int:
    """Return how many records after the one at `begin` have the same length: their lengths are at
    equal distances, so one slice has them all.

    Many producers write records of one size; checking each costs more than the batch's checksum.
    The look-ahead doubles while it succeeds.
    """
    first, second = bytes(data[begin : begin + 1]), bytes(data[begin + 1 : begin + 2])
    alike, ahead = 0, FIRST_LOOK_AHEAD
    while alike < count_max:
        ahead = min(ahead, count_max - alike)
        start = begin + (alike + 1) * size_bytes
        end = start + ahead * size_bytes
        firsts, seconds = (
            bytes(data[start:end:size_bytes]),
            bytes(data[start + 1 : end : size_bytes]),
        )
        found = min(
            len(firsts) - len(firsts.lstrip(first)), len(seconds) - len(seconds.lstrip(second))
        )
        alike += found
        if found < ahead:
            break
        ahead *= 2
    return alike
