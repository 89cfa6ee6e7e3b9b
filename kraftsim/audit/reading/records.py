"""Reads every record of a batch into rows of `records`.

Most batches are decoded side by side (`record_walk`); what is unusual, and messages of the formats
0 and 1, one after the other.
Source: KIP-98, DefaultRecord.
"""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraftsim.audit.reading.pieces import Row, TablePiece
from kraftsim.audit.reading.record_walk import Longs, Walked, cut_out, walk, without
from kraftsim.audit.reading.segments import (
    LAST_SEQUENCE,
    FoundBatches,
    SegmentRange,
    record_batch,
)
from protocol.malformed import MalformedMessage
from protocol.records.batches import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME_BIT,
    NO_SEQUENCE,
    SEQUENCES,
    TRANSACTIONAL_BIT,
    RecordBatch,
)
from protocol.records.message_sets import AnyBatch
from protocol.records.record import HEADER_KEY_ERRORS, Headers, Record, decompress
from protocol.records.record_codec import FAR, headers_at

NO_HEADERS: Final = "[]"
OF_NO_PRODUCER: Final[Row] = (-1, -1, -1, False, False)
ROWS_PER_PIECE: Final = 16_384
BYTES_PER_PIECE: Final = 16 << 20
"""Of records without their compression; a larger batch is decoded record by record."""


class _Bodies(NamedTuple):
    """The records of some batches: `numbers` are those of the batches among the found ones."""

    content: npt.NDArray[np.uint8]
    numbers: Longs
    starts: Longs
    ends: Longs


def record_pieces(part: SegmentRange, found: FoundBatches) -> Iterator[TablePiece]:
    """Yield the records of some batches, and rows of `problems` for batches that do not decode."""
    if found.old is not None:
        if found.old.crc_is_valid():
            yield from one_by_one(part, found.old, found.shift)
        return
    headers = found.headers
    attributes, lengths = headers["attributes"], headers["batch_length"]
    is_wanted = np.ones(len(headers), bool) if found.crc_valid is None else found.crc_valid.copy()
    is_common = is_wanted & (lengths <= BYTES_PER_PIECE)
    for name in ("base_offset", "base_timestamp"):
        is_common &= (headers[name] >= -FAR) & (headers[name] <= FAR)
    is_packed = attributes & COMPRESSION_MASK != 0
    others: list[int] = np.flatnonzero(is_wanted & ~is_common).tolist()
    for bodies in chain(
        _plain_bodies(found, np.flatnonzero(is_common & ~is_packed)),
        _unpacked_bodies(found, np.flatnonzero(is_common & is_packed), others),
    ):
        counts = headers["record_count"][bodies.numbers].astype(np.int64)
        walked, texts = _with_headers(
            bodies, walk(bodies.content, bodies.starts, bodies.ends, counts)
        )
        others += bodies.numbers[walked.is_left].tolist()
        if len(walked.batch):
            yield TablePiece("records", _columns(part, found, bodies, walked, texts))
    for number in sorted(others):
        batch = RecordBatch(found.buffer, int(found.positions[number]))
        yield from one_by_one(part, batch, found.shift)


def _plain_bodies(found: FoundBatches, numbers: Longs) -> Iterator[_Bodies]:
    if len(numbers):
        starts = found.positions[numbers]
        ends = starts + found.headers["batch_length"][numbers] + LENGTH_OVERHEAD_BYTES
        content = np.frombuffer(found.buffer, np.uint8)
        yield _Bodies(content, numbers, starts + HEADER_SIZE_BYTES, ends)


def _unpacked_bodies(found: FoundBatches, numbers: Longs, others: list[int]) -> Iterator[_Bodies]:
    """Decompress batches, as many as fit a piece at a time; add those that cannot be decompressed,
    and very large ones, to `others`.
    """
    plain: list[bytes] = []
    kept: list[int] = []
    for number in numbers.tolist():
        batch = RecordBatch(found.buffer, int(found.positions[number]))
        start, end = batch.position + HEADER_SIZE_BYTES, batch.position + batch.size_bytes
        try:
            unpacked = decompress(batch.compression, memoryview(found.buffer)[start:end])
        except MalformedMessage:
            others.append(number)
            continue
        if len(unpacked) > BYTES_PER_PIECE:
            others.append(number)
            continue
        if sum(map(len, plain)) + len(unpacked) > BYTES_PER_PIECE:
            yield _joined(plain, kept)
            plain, kept = [], []
        plain.append(unpacked)
        kept.append(number)
    if kept:
        yield _joined(plain, kept)


def _joined(plain: list[bytes], numbers: list[int]) -> _Bodies:
    ends = np.cumsum([len(each) for each in plain])
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    content = np.frombuffer(b"".join(plain), np.uint8)
    return _Bodies(content, np.array(numbers), starts, ends)


def _columns(
    part: SegmentRange, found: FoundBatches, bodies: _Bodies, walked: Walked, texts: pa.Array
) -> pa.RecordBatch:
    """Return the rows of the records that were found."""
    numbers = bodies.numbers[walked.batch]
    headers = found.headers[numbers]
    attributes = headers["attributes"]
    base_sequence = headers["base_sequence"].astype(np.int64)
    count = len(numbers)
    values = {
        "position": pa.array(found.positions[numbers] + found.shift),
        "record_offset": pa.array(headers["base_offset"].astype(np.int64) + walked.offset_delta),
        "leader_epoch": pa.array(headers["leader_epoch"].astype(np.int32)),
        "timestamp_ms": pa.array(
            np.where(
                attributes & LOG_APPEND_TIME_BIT != 0,
                headers["max_timestamp"],
                headers["base_timestamp"].astype(np.int64) + walked.timestamp_delta,
            ).astype(np.int64)
        ),
        "key": cut_out(bodies.content, walked.key_start, walked.key_size),
        "value": cut_out(bodies.content, walked.value_start, walked.value_size),
        "headers": texts,
        "producer_id": pa.array(headers["producer_id"].astype(np.int64)),
        "producer_epoch": pa.array(headers["producer_epoch"].astype(np.int32)),
        "sequence": pa.array(
            np.where(
                base_sequence == NO_SEQUENCE,
                NO_SEQUENCE,
                base_sequence + walked.offset_delta & LAST_SEQUENCE,
            ).astype(np.int32)
        ),
        "is_transactional": pa.array(attributes & TRANSACTIONAL_BIT != 0),
        "is_control": pa.array(attributes & CONTROL_BIT != 0),
    }
    return record_batch("records", part.origin, values, count)


def _with_headers(bodies: _Bodies, walked: Walked) -> tuple[Walked, pa.Array]:
    """Return the headers of all records as JSON; batches with a malformed one are left."""
    with_headers = np.flatnonzero(walked.header_count).tolist()
    if not with_headers:
        return walked, pa.repeat(pa.scalar(NO_HEADERS), len(walked.batch))
    texts = np.full(len(walked.batch), NO_HEADERS, object)
    content = bodies.content.tobytes()
    is_wrong = np.zeros(len(bodies.numbers), bool)
    for number in with_headers:
        try:
            headers, end = headers_at(content, int(walked.headers_position[number]))
        except MalformedMessage:
            end, headers = -1, ()
        if end != walked.record_end[number]:
            is_wrong[walked.batch[number]] = True
        texts[number] = _headers(headers)
    kept = ~is_wrong[walked.batch]
    return without(walked, is_wrong), pa.array(texts[kept], pa.string())


def one_by_one(part: SegmentRange, batch: AnyBatch, shift: int) -> Iterator[TablePiece]:
    """Decode a batch record by record; what cannot be decoded is a row of `problems`."""
    rows: list[Row] = []
    size = 0
    position = batch.position + shift
    try:
        for record in batch.records():
            rows.append(_row(part, batch, position, record))
            size += len(record.value or b"") + len(record.key or b"")
            if len(rows) == ROWS_PER_PIECE or size > BYTES_PER_PIECE:
                yield TablePiece("records", rows)
                rows, size = [], 0
    except MalformedMessage as malformed:
        yield part.origin.problem(
            "malformed", malformed.reason, position=position, size=batch.size_bytes
        )
    if rows:
        yield TablePiece("records", rows)


def _row(part: SegmentRange, batch: AnyBatch, position: int, record: Record) -> Row:
    epoch, producer = None, OF_NO_PRODUCER
    if isinstance(batch, RecordBatch):
        epoch = batch.partition_leader_epoch
        sequence = NO_SEQUENCE
        if batch.base_sequence != NO_SEQUENCE:
            sequence = (batch.base_sequence + record.offset - batch.base_offset) % SEQUENCES
        producer = (
            batch.producer_id,
            batch.producer_epoch,
            sequence,
            batch.is_transactional,
            batch.is_control,
        )
    return (
        *part.origin.prefix,
        position,
        record.offset,
        epoch,
        record.timestamp,
        record.key,
        record.value,
        _headers(record.headers),
        *producer,
    )


def _headers(headers: Headers) -> str:
    if not headers:
        return NO_HEADERS
    return json.dumps(
        [
            (
                key.encode(errors=HEADER_KEY_ERRORS).decode(errors="backslashreplace"),
                None if value is None else value.hex(),
            )
            for key, value in headers
        ],
        separators=(",", ":"),
    )
