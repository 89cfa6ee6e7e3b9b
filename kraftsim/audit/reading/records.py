"""Reads every record of a batch into rows of `records`.

Source: KIP-98, DefaultRecord.
"""

import json
from collections.abc import Iterator
from typing import Final

from kraftsim.audit.reading.pieces import Piece, Row
from kraftsim.audit.reading.segments import Found, SegmentRange
from protocol.malformed import MalformedMessage
from protocol.records.batches import NO_SEQUENCE, SEQUENCES, RecordBatch
from protocol.records.message_sets import AnyBatch
from protocol.records.record import HEADER_KEY_ERRORS, Headers, Record

NO_HEADERS: Final = "[]"
OF_NO_PRODUCER: Final[Row] = (-1, -1, -1, False, False)
ROWS_PER_PIECE: Final = 16_384
BYTES_PER_PIECE: Final = 16 << 20


def record_pieces(part: SegmentRange, found: Found) -> Iterator[Piece]:
    """Yield the records of some batches, and rows of `problems` for batches that do not decode."""
    rows: list[Row] = []
    size = 0
    for batch in found.batches():
        position = batch.position + found.shift
        try:
            for record in batch.records():
                rows.append(_row(part, batch, position, record))
                size += len(record.value or b"") + len(record.key or b"")
                if len(rows) == ROWS_PER_PIECE or size > BYTES_PER_PIECE:
                    yield Piece("records", rows)
                    rows, size = [], 0
        except MalformedMessage as malformed:
            yield part.origin.problem(
                "malformed", malformed.reason, position=position, size=batch.size_bytes
            )
    if rows:
        yield Piece("records", rows)


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
