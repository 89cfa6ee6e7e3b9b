"""Batches for the tests of the rules, without payload worth naming."""

from protocol.batches import RecordBatch, build_batch
from protocol.compression import Compression
from protocol.records import Record

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
