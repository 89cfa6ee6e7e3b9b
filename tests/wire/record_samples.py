"""Records, batches and message sets of every format, codec and kind, for comparisons with other
implementations.
"""

from typing import TypedDict, Unpack

from protocol.records.batches import RecordBatch, TimestampType, build_batch, build_empty_batch
from protocol.records.control_records import build_transaction_marker
from protocol.records.message_sets import build_message, build_message_set
from protocol.records.record import Compression, Record, compress

TIME = 1_700_000_000_000
OLD_CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
RECORDS = (
    Record(0, TIME + 5, None, b"first"),
    Record(1, TIME + 9, b"key", None),
    Record(2, TIME + 9, b"", b""),
    Record(3, TIME, b"k" * 63, b"v" * 300),
)


class ProducerOptions(TypedDict, total=False):
    """The parameters of `build_batch` that name a producer."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class BatchOptions(ProducerOptions, total=False):
    """The parameters of `build_batch` that the samples use."""

    compression: Compression
    transactional: bool
    append_timestamp: int
    delete_horizon_ms: int


PRODUCER: ProducerOptions = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 7}


def batch_at(
    base_offset: int, records: tuple[Record, ...] = RECORDS, **options: Unpack[BatchOptions]
) -> bytes:
    """Return a batch of format 2 whose first record has this offset."""
    moved = [record._replace(offset=record.offset + base_offset) for record in records]
    return build_batch(moved, base_offset=base_offset, **options)


def message_set_at(
    base_offset: int,
    magic: int,
    codec: Compression = Compression.NONE,
    append_timestamp: int | None = None,
) -> bytes:
    """Return a message set of format 0 or 1 whose first record has this offset."""
    moved = [record._replace(offset=record.offset + base_offset) for record in RECORDS]
    return build_message_set(
        moved,
        magic=magic,
        base_offset=base_offset,
        compression=codec,
        append_timestamp=append_timestamp,
    )


def marker_at(base_offset: int) -> bytes:
    """Return the marker that ends a transaction."""
    return build_transaction_marker(
        commits=True,
        producer_id=5,
        producer_epoch=1,
        coordinator_epoch=0,
        timestamp=TIME,
        base_offset=base_offset,
    )


def produced() -> dict[str, bytes]:
    """Return batches of producers of all releases, valid and invalid, by name."""
    timeless = [record._replace(timestamp=-1) for record in RECORDS]
    samples = {
        "headers": build_batch([RECORDS[0]._replace(headers=(("h", b"x"),))]),
        "a wrong newest timestamp": b"".join(
            RecordBatch(batch_at(0)).with_max_timestamp(0, -1, TimestampType.CREATE_TIME, 5)
        ),
        "formats 0 and 1": message_set_at(0, 0) + message_set_at(0, 1),
        "two wrappers": message_set_at(0, 1, Compression.GZIP) * 2,
        "two batches": batch_at(0) * 2,
        "a wrapper behind a message": message_set_at(0, 1) + message_set_at(0, 1, Compression.GZIP),
        "a torn tail": message_set_at(0, 1)[:-3],
        "nothing whole": batch_at(0)[:70],
        "format 1 without time": build_message_set(timeless, magic=1),
        "format 1 without append time": build_message_set(timeless, magic=1, append_timestamp=-1),
        "a time before 1970": build_batch([RECORDS[0]._replace(timestamp=-5)]),
        "a wrapper without offset, as librdkafka once wrote it": bytes(8)
        + message_set_at(7, 1, Compression.GZIP)[8:],
        "inner offsets of the log": message_set_at(7, 1, Compression.GZIP),
        "a base offset": batch_at(3),
        "a control batch": marker_at(0),
        "a wrong checksum": batch_at(0)[:-1] + b"\xff",
        "a wrong checksum in format 1": message_set_at(0, 1)[:-1] + b"\xff",
        "a wrong checksum in a wrapper": _wrapped(_spoilt(message_set_at(0, 1))),
        "format 0 in a wrapper of format 1": _wrapped(message_set_at(0, 0)),
        "a wrapper in a wrapper": _wrapped(message_set_at(0, 1, Compression.GZIP)),
        "nothing in a wrapper": _wrapped(b""),
    }
    for codec in Compression:
        samples[f"format 2 {codec.name}"] = batch_at(0, compression=codec)
        samples[f"format 2 {codec.name} of a producer"] = batch_at(0, compression=codec, **PRODUCER)
        samples[f"format 2 {codec.name} in a transaction"] = batch_at(
            0, compression=codec, transactional=True, **PRODUCER
        )
        samples[f"format 2 {codec.name} with append time"] = batch_at(
            0, compression=codec, append_timestamp=TIME
        )
    for codec in OLD_CODECS:
        samples[f"format 0 {codec.name}"] = message_set_at(0, 0, codec)
        samples[f"format 1 {codec.name}"] = message_set_at(0, 1, codec)
        samples[f"format 1 {codec.name} with append time"] = message_set_at(0, 1, codec, TIME)
    return samples


def logged() -> dict[str, bytes]:
    """Return possible contents of a log, by name: consecutive batches of all formats, from offset
    50 on.
    """
    large = tuple(
        Record(number, TIME + number, None, bytes([97 + number % 26]) * 1000)
        for number in range(40)
    )
    much = b"".join(batch_at(100 * number, large) for number in range(9))
    headed = tuple(record._replace(headers=(("h", b"1"),)) for record in RECORDS)
    shrinking = b"".join(
        batch_at(100 * number + 100, (Record(0, TIME, None, b"", (("h", b"x" * 3000),)),))
        for number in range(100)
    )
    empty = build_empty_batch(RecordBatch(batch_at(50, **PRODUCER)))
    samples = {
        "nothing": b"",
        "a mark": marker_at(54),
        "5 bytes": batch_at(50)[:5],
        "12 bytes": batch_at(50)[:12],
        "a torn batch": batch_at(50)[:70],
        "a mark before batches": marker_at(49) + batch_at(50) + batch_at(60),
        "a mark between batches": batch_at(50) + marker_at(54) + batch_at(55) + batch_at(60),
        "all formats": message_set_at(10, 0) + message_set_at(14, 1) + batch_at(18),
        "a torn tail": batch_at(50) + marker_at(54) + batch_at(64)[:80],
        "zstd behind": batch_at(50) + batch_at(55, compression=Compression.ZSTD),
        "several pieces": much,
        "several pieces and a torn one": much + batch_at(900, large)[:-5],
        "zstd behind several pieces": much + batch_at(2000, compression=Compression.ZSTD),
        "much less when converted": batch_at(
            50, (Record(0, TIME, None, b""), Record(1, TIME, None, b""))
        )
        + shrinking,
        "a time before 1970": batch_at(50, (RECORDS[0]._replace(timestamp=-5),)),
        "gaps of compaction": build_batch(
            [RECORDS[0]._replace(offset=52), RECORDS[1]._replace(offset=60)], base_offset=50
        ),
        "a delete horizon": batch_at(50, delete_horizon_ms=TIME + 1000),
        "times as far apart as can be": batch_at(
            50, (Record(0, -1, None, b""), Record(1, 2**63 - 1, None, b""), Record(2, 0, None, b""))
        ),
        "an empty batch": empty,
        "an empty batch before another": empty + batch_at(60),
    }
    for codec in Compression:
        samples[f"format 2 {codec.name}"] = batch_at(50, compression=codec)
        samples[f"format 2 {codec.name} with append time"] = batch_at(
            50, compression=codec, append_timestamp=TIME + 1
        )
        samples[f"format 2 {codec.name} with headers in a transaction"] = batch_at(
            50, headed, compression=codec, transactional=True, **PRODUCER
        )
    for codec in OLD_CODECS:
        samples[f"format 0 {codec.name}"] = message_set_at(50, 0, codec)
        samples[f"format 1 {codec.name}"] = message_set_at(50, 1, codec)
        samples[f"format 1 {codec.name} with append time"] = message_set_at(50, 1, codec, TIME)
    return samples


def _wrapped(messages: bytes) -> bytes:
    """Return a gzip wrapper of format 1 around any bytes."""
    return build_message(1, 3, Compression.GZIP, TIME, None, compress(Compression.GZIP, messages))


def _spoilt(messages: bytes) -> bytes:
    return messages[:-1] + b"\xff"
