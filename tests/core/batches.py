"""Batches for the core tests, with arbitrary payload."""

from crc32c import crc32c

from protocol.records.batches import (
    BEFORE_CRC,
    COVERED_HEADER,
    CRC,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    RecordBatch,
    build_batch,
)
from protocol.records.control_records import ControlType, EndTxnMarker, build_control_record
from protocol.records.record import Compression, Record

SEQUENCES = 2**31


def make_batch(
    first: int = 0,
    last: int | None = None,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    timestamp: int = 1000,
    value: bytes = b"v",
    key: bytes | None = b"k",
    base_offset: int = 0,
    transactional: bool = False,
    control: bool = False,
    compression: Compression = Compression.NONE,
) -> RecordBatch:
    """Return the batch; without `last` it holds one record."""
    count = 1 if last is None else (last - first) % SEQUENCES + 1
    records = [Record(timestamp=timestamp, key=key, value=value) for _ in range(count)]
    return RecordBatch(
        build_batch(
            records,
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=first,
            transactional=transactional,
            control=control,
            compression=compression,
        )
    )


def make_marker(
    *,
    commits: bool = True,
    producer_id: int = 7,
    epoch: int = 0,
    timestamp: int = 1000,
    base_offset: int = 0,
    coordinator_epoch: int = 0,
) -> RecordBatch:
    """Return the control batch by which a coordinator ends a transaction."""
    kind = ControlType.COMMIT if commits else ControlType.ABORT
    key, value = build_control_record(kind, EndTxnMarker(coordinator_epoch=coordinator_epoch))
    return make_batch(
        -1,
        producer_id=producer_id,
        epoch=epoch,
        timestamp=timestamp,
        key=key,
        value=value,
        base_offset=base_offset,
        transactional=True,
        control=True,
    )


def doctored(
    batch: RecordBatch,
    *,
    base_offset: int | None = None,
    last_offset_delta: int | None = None,
    record_count: int | None = None,
    attributes: int | None = None,
    base_sequence: int | None = None,
    records: bytes | None = None,
) -> RecordBatch:
    """Return a batch with some wrong fields and a valid checksum."""
    body = bytes(batch.view()[HEADER_SIZE_BYTES:]) if records is None else records
    covered = COVERED_HEADER.pack(
        batch.attributes if attributes is None else attributes,
        batch.last_offset_delta if last_offset_delta is None else last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence if base_sequence is None else base_sequence,
        batch.record_count if record_count is None else record_count,
    )
    length = HEADER_SIZE_BYTES - LENGTH_OVERHEAD_BYTES + len(body)
    before = BEFORE_CRC.pack(
        batch.base_offset if base_offset is None else base_offset, length, -1, MAGIC
    )
    return RecordBatch(before + CRC.pack(crc32c(body, crc32c(covered))) + covered + body)
