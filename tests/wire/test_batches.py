"""Record batches: the header view, the checksum, broker-assigned fields, records, torn and foreign
bytes.
"""

import contextlib
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kio.records.readers import read_batch as kio_read_batch

from protocol.errors import ErrorCode
from protocol.records.batches import (
    RecordBatch,
    TimestampType,
    build_batch,
    build_empty_batch,
    split_batches,
)
from protocol.records.record import (
    Compression,
    MalformedBatch,
    MalformedRecord,
    Record,
    TornBatch,
    UndecodableRecords,
    UnsupportedMagic,
)
from protocol.records.record_codec import build_varint, read_varint

GOLDEN = Path(__file__).parent / "kafka_3_9_1" / "golden-0"
TIME = 1_700_000_000_000
PRODUCED = bytes.fromhex(
    "000000000000000000000042ffffffff02e91b36ad0000000000010000018bcfe568000000018bcfe568000000000000000fa0000000000000000000020e00000001026100"
    "10000002026b026200"
)
"""A batch of a producer: producer id 4000, epoch 0, sequence 0, records (null, "a") and ("k",
"b").
"""

RECORDS = [
    Record(0, TIME, None, b"first"),
    Record(1, TIME + 1, b"key", None),
    Record(2, TIME - 5, b"", b"", (("trace", b"abc"), ("empty", None), ("", b""))),
    Record(3, TIME + 2**40, b"k" * 63, b"v" * 64),
    Record(4, TIME, b"k" * 200, b"v" * 20_000),
]
KAFKA_PYTHON_CODECS = (Compression.NONE, Compression.GZIP)
"""Codecs that kafka-python reads without further libraries; aiokafka uses the same library as
kraftsim, with its own framing.
"""


def changed(batch: bytes, position: int, replacement: bytes) -> bytes:
    return batch[:position] + replacement + batch[position + len(replacement) :]


def test_the_header_of_a_produced_batch_is_read_and_built_byte_for_byte() -> None:
    """The 61-byte header of message format 2 (KIP-98); a vector computed by another encoder and
    read by another decoder.
    """
    batch = RecordBatch(PRODUCED)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (0, 1, 2)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (
        4000,
        0,
        0,
        1,
    )
    assert (batch.magic, batch.record_count, batch.size_bytes, batch.compression) == (
        2,
        2,
        78,
        Compression.NONE,
    )
    assert (
        not batch.is_transactional
        and not batch.is_control
        and batch.timestamp_type is TimestampType.CREATE_TIME
    )
    assert batch.crc_is_valid()
    assert list(batch.records()) == [Record(0, TIME, None, b"a"), Record(1, TIME, b"k", b"b")]
    records = [Record(timestamp=TIME, value=b"a"), Record(timestamp=TIME, key=b"k", value=b"b")]
    assert build_batch(records, producer_id=4000, producer_epoch=0, base_sequence=0) == PRODUCED


def test_a_batch_is_a_view_at_any_position_of_any_buffer() -> None:
    for buffer in (
        b"xyz" + PRODUCED + b"rest",
        bytearray(b"xyz" + PRODUCED + b"rest"),
        memoryview(b"xyz" + PRODUCED + b"rest"),
    ):
        batch = RecordBatch(buffer, 3)
        assert batch.crc_is_valid() and batch.view() == PRODUCED and len(list(batch.records())) == 2


def test_a_log_sets_the_base_offset_without_a_copy_or_a_new_checksum() -> None:
    """Base offset and leader epoch are not covered by the checksum, so that a broker need not
    recompute it (KIP-98).
    """
    buffer = b"frame" + PRODUCED
    head, rest = RecordBatch(buffer, 5).with_base_offset(1000, 7)
    assert len(head) == 16 and isinstance(rest, memoryview) and rest.obj is buffer
    batch = RecordBatch(bytes(head) + bytes(rest))
    assert (batch.base_offset, batch.next_offset, batch.partition_leader_epoch) == (1000, 1002, 7)
    assert batch.crc_is_valid() and [record.offset for record in batch.records()] == [1000, 1001]


def test_log_append_time_updates_timestamp_and_checksum() -> None:
    """LogAppendTime: the maximum timestamp is the append time, and replaces the timestamp of every
    record.
    """
    batch = RecordBatch(b"".join(RecordBatch(PRODUCED).with_log_append_time(50, 3, TIME + 99)))
    assert batch.crc_is_valid() and batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [(record.offset, record.timestamp) for record in batch.records()] == [
        (50, TIME + 99),
        (51, TIME + 99),
    ]
    assert (batch.base_timestamp, batch.producer_id, batch.partition_leader_epoch) == (
        TIME,
        4000,
        3,
    )


@pytest.mark.parametrize(
    "base_sequence, last_sequence",
    [(0, 4), (2**31 - 5, 2**31 - 1), (2**31 - 4, 0), (2**31 - 1, 3), (-1, -1)],
)
def test_sequence_numbers_wrap_to_zero(base_sequence: int, last_sequence: int) -> None:
    """DefaultRecordBatch.incrementSequence: 2^31 - 1 is followed by 0; -1 means none."""
    assert (
        RecordBatch(build_batch(RECORDS, base_sequence=base_sequence)).last_sequence
        == last_sequence
    )


@pytest.mark.parametrize("position", [21, 23, 43, 53, 57, 61, len(PRODUCED) - 1])
def test_a_flipped_bit_invalidates_the_checksum(position: int) -> None:
    assert not RecordBatch(
        changed(PRODUCED, position, bytes([PRODUCED[position] ^ 1]))
    ).crc_is_valid()


@pytest.mark.parametrize("position", [0, 7, 12, 15])
def test_broker_assigned_fields_are_not_covered_by_the_checksum(position: int) -> None:
    assert RecordBatch(changed(PRODUCED, position, b"\x01")).crc_is_valid()


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_of_the_java_client_are_read_as_sent(codec: Compression) -> None:
    """Five batches of a 3.9.1 log, one per codec (kafka_3_9_1/Produce.java)."""
    log = (GOLDEN / "00000000000000000000.log").read_bytes()
    batch = next(batch for batch in split_batches(log) if batch.compression is codec)
    assert batch.crc_is_valid() and (batch.record_count, batch.base_sequence) == (4, 0)
    text = b" value value value value " + codec.name.lower().encode()
    assert [
        (
            record.offset - batch.base_offset,
            record.timestamp - TIME,
            record.key,
            record.value,
            record.headers,
        )
        for record in batch.records()
    ] == [
        (0, 0, None, b"value 0" + text, ()),
        (1, 1, b"key1", b"value 1" + text, ()),
        (2, 2, b"key2", b"value 2" + text, (("trace", b"abc"),)),
        (3, 3, b"key3", None, ()),
    ]


def test_our_batch_equals_the_java_clients_batch() -> None:
    """Byte for byte, without compression."""
    golden = RecordBatch((GOLDEN / "00000000000000000000.log").read_bytes())
    assert (
        build_batch(
            golden.records(), leader_epoch=0, producer_id=0, producer_epoch=0, base_sequence=0
        )
        == golden.view()
    )


@pytest.mark.parametrize("codec", list(Compression))
def test_other_libraries_read_our_batches(codec: Compression) -> None:
    built = build_batch(
        RECORDS, base_offset=0, producer_id=7, producer_epoch=1, base_sequence=9, compression=codec
    )
    ours = [
        (record.offset, record.timestamp, record.key, record.value, list(record.headers))
        for record in RECORDS
    ]
    for library in (
        (AiokafkaBatch, KafkaPythonBatch) if codec in KAFKA_PYTHON_CODECS else (AiokafkaBatch,)
    ):
        theirs = library(bytearray(built))
        assert theirs.validate_crc()
        assert [
            (each.offset, each.timestamp, each.key, each.value, list(each.headers))
            for each in theirs
        ] == ours
    assert list(RecordBatch(built).records()) == RECORDS


def test_kio_reads_the_same_header_and_records() -> None:
    built = build_batch(
        RECORDS[:3], base_offset=0, leader_epoch=4, producer_id=7, producer_epoch=1, base_sequence=9
    )
    theirs = kio_read_batch(built, 0)[0]
    assert (
        theirs.producer_id,
        theirs.producer_epoch,
        theirs.base_sequence,
        theirs.partition_leader_epoch,
    ) == (7, 1, 9, 4)
    assert [(each.key, each.value) for each in theirs.records] == [
        (record.key, record.value) for record in RECORDS[:3]
    ]


@pytest.mark.parametrize("codec", list(Compression))
def test_we_read_batches_of_other_libraries(codec: Compression) -> None:
    for library in (
        (AiokafkaBuilder, KafkaPythonBuilder)
        if codec in KAFKA_PYTHON_CODECS
        else (AiokafkaBuilder,)
    ):
        builder = library(2, codec, False, 7, 1, 9, 1 << 20)
        for number, record in enumerate(RECORDS):
            assert builder.append(
                number, record.timestamp, record.key, record.value, list(record.headers)
            )
        assert list(RecordBatch(bytes(builder.build())).records()) == RECORDS


def test_records_keep_their_offsets_after_compaction() -> None:
    kept = [Record(12, TIME, b"a"), Record(15, TIME, b"b"), Record(value=b"c", timestamp=TIME)]
    batch = RecordBatch(build_batch(kept, base_offset=10))
    assert [record.offset for record in batch.records()] == [12, 15, 16]
    assert (batch.base_offset, batch.last_offset) == (10, 16)


@pytest.mark.parametrize(
    "value", [0, -1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
)
def test_varints_round_trip(value: int) -> None:
    built = build_varint(value)
    assert read_varint(b"\xff" + built + b"\xff", 1) == (value, 1 + len(built))


def test_splitting_stops_at_a_torn_last_batch() -> None:
    """A crash during an append leaves a partial batch; everything before it is complete."""
    for size in range(1, len(PRODUCED)):
        batches = split_batches(PRODUCED + PRODUCED + PRODUCED[:size])
        assert len(list(batches)) == 2
        assert batches.end_position == 2 * len(PRODUCED) and batches.is_torn
    batches = split_batches(PRODUCED * 3)
    assert len(list(batches)) == 3 and not batches.is_torn


@pytest.mark.parametrize(
    "garbage", [bytes(100), b"\xff" * 100, b"garbage" * 20], ids=["zeros", "ones", "words"]
)
def test_trailing_garbage_is_distinguished_from_a_torn_tail(garbage: bytes) -> None:
    """A power loss may leave zeros instead of a batch: they are not a valid batch."""
    batches = split_batches(PRODUCED + garbage)
    assert next(batches).size_bytes == len(PRODUCED)
    with pytest.raises(MalformedBatch) as found:
        next(batches)
    assert not isinstance(
        found.value, TornBatch
    ) and found.value.position == batches.end_position == len(PRODUCED)


def record_body(body: bytes, count: int = 1) -> bytes:
    """Return a batch whose records are these bytes, with a correct checksum: only the records are
    invalid.
    """
    made = build_batch([Record(timestamp=TIME, value=b"")])
    header = changed(made[:61], 8, struct.pack(">i", 49 + len(body)))
    return changed(header, 57, struct.pack(">i", count)) + body


def attributes(number: int) -> bytes:
    return changed(PRODUCED, 21, struct.pack(">h", number))


@pytest.mark.parametrize(
    "make, error, code",
    [
        (lambda: PRODUCED[:60], TornBatch, ErrorCode.INVALID_RECORD),
        (lambda: PRODUCED[:-1], TornBatch, ErrorCode.INVALID_RECORD),
        (lambda: b"", TornBatch, ErrorCode.INVALID_RECORD),
        (
            lambda: changed(PRODUCED, 8, struct.pack(">i", 48)),
            MalformedBatch,
            ErrorCode.CORRUPT_MESSAGE,
        ),
        (
            lambda: changed(PRODUCED, 8, struct.pack(">i", -1)),
            MalformedBatch,
            ErrorCode.CORRUPT_MESSAGE,
        ),
        (lambda: changed(PRODUCED, 16, b"\x00"), UnsupportedMagic, ErrorCode.INVALID_RECORD),
        (lambda: changed(PRODUCED, 16, b"\x01"), UnsupportedMagic, ErrorCode.INVALID_RECORD),
        (lambda: changed(PRODUCED, 16, b"\x03"), UnsupportedMagic, ErrorCode.CORRUPT_MESSAGE),
        (lambda: changed(PRODUCED, 16, b"\x01")[:40], UnsupportedMagic, ErrorCode.INVALID_RECORD),
        (lambda: attributes(5), UndecodableRecords, ErrorCode.UNKNOWN_SERVER_ERROR),
        (lambda: attributes(1), UndecodableRecords, ErrorCode.UNKNOWN_SERVER_ERROR),
        (lambda: attributes(2), UndecodableRecords, ErrorCode.UNKNOWN_SERVER_ERROR),
        (lambda: attributes(3), UndecodableRecords, ErrorCode.UNKNOWN_SERVER_ERROR),
        (lambda: attributes(4), UndecodableRecords, ErrorCode.UNKNOWN_SERVER_ERROR),
        (lambda: record_body(b""), MalformedRecord, ErrorCode.INVALID_RECORD),
        (lambda: record_body(b"\x00"), MalformedRecord, ErrorCode.INVALID_RECORD),
        (lambda: record_body(b"\x01"), MalformedRecord, ErrorCode.INVALID_RECORD),
        (
            lambda: record_body(b"\x0e\x00\x00\x00\x01\x02a\x00", 2),
            MalformedRecord,
            ErrorCode.INVALID_RECORD,
        ),
        (
            lambda: record_body(b"\x0e\x00\x00\x00\x01\x02a\x00", 0),
            MalformedRecord,
            ErrorCode.INVALID_RECORD,
        ),
        (
            lambda: record_body(b"\x0c\x00\x00\x00\x01\x02a\x00"),
            MalformedRecord,
            ErrorCode.INVALID_RECORD,
        ),
        (
            lambda: record_body(b"\x0e\x00\x00\x00\x01\x7ea\x00"),
            MalformedRecord,
            ErrorCode.INVALID_RECORD,
        ),
        (
            lambda: record_body(b"\x0e\x00\x00\x00\x01\x02a\x01"),
            MalformedRecord,
            ErrorCode.INVALID_RECORD,
        ),
        (
            lambda: record_body(b"\x0e\x00\x00\x00\x01\x02a\x7e"),
            MalformedRecord,
            ErrorCode.INVALID_RECORD,
        ),
        (
            lambda: record_body(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01"),
            MalformedRecord,
            ErrorCode.INVALID_RECORD,
        ),
        (lambda: record_body(b"\xff" * 12), MalformedRecord, ErrorCode.INVALID_RECORD),
        (
            lambda: record_body(b"\x8e\x80\x80\x80\x80\x00\x00\x00\x00\x01\x02a\x00"),
            MalformedRecord,
            ErrorCode.INVALID_RECORD,
        ),
        (
            lambda: record_body(b"\x2e\x00\x00" + b"\x80" * 11 + b"\x00" * 10),
            MalformedRecord,
            ErrorCode.INVALID_RECORD,
        ),
        (lambda: record_body(b"", -1), MalformedRecord, ErrorCode.INVALID_RECORD),
        (lambda: record_body(b"", 2**31 - 1), MalformedRecord, ErrorCode.INVALID_RECORD),
        (lambda: record_body(bytes(1000), 2**31 - 1), MalformedRecord, ErrorCode.INVALID_RECORD),
        (
            lambda: changed(build_batch(RECORDS[:2]), 0, b"\x7f" + b"\xff" * 7),
            MalformedRecord,
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
def test_bad_bytes_are_refused_with_the_error_code_of_a_broker(
    make: Callable[[], bytes], error: type[MalformedBatch], code: ErrorCode
) -> None:
    """ProduceRequest.validateRecords, ByteBufferLogInputStream and LogValidator of 3.9.1."""
    with pytest.raises(error) as found:
        list(RecordBatch(make()).records())
    assert found.value.error_code is code


def test_timestamps_wrap_around_as_java_longs() -> None:
    """The deltas of a batch have 64 bits, as have the timestamps: a builder wraps around, and so
    must a reader.
    """
    for first, second in (
        (-1, 2**63 - 1),
        (2**63 - 1, -1),
        (2**63 - 1, 0),
        (-(2**63), 2**63 - 1),
        (2**62, 2**62 + 1),
    ):
        records = [Record(0, first, None, b"a"), Record(1, second, None, b"b")]
        assert list(RecordBatch(build_batch(records)).records()) == records


def test_compaction_sets_a_delete_horizon_and_leaves_empty_batches() -> None:
    """KIP-534: the horizon replaces the base timestamp, and record deltas are relative to it.

    KIP-98: an empty batch keeps the producer state.
    """
    horizon = RecordBatch(build_batch(RECORDS, delete_horizon_ms=TIME + 5000))
    assert (
        horizon.delete_horizon_ms == horizon.base_timestamp == TIME + 5000
        and list(horizon.records()) == RECORDS
    )
    assert RecordBatch(PRODUCED).delete_horizon_ms is None
    built = RecordBatch(
        build_batch(
            RECORDS,
            base_offset=0,
            leader_epoch=3,
            producer_id=7,
            producer_epoch=1,
            base_sequence=9,
            transactional=True,
        )
    )
    empty = RecordBatch(build_empty_batch(built))
    assert empty.crc_is_valid() and list(empty.records()) == [] and empty.size_bytes == 61
    for name in (
        "base_offset",
        "last_offset",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "partition_leader_epoch",
    ):
        assert getattr(empty, name) == getattr(built, name)
    assert empty.is_transactional and empty.base_timestamp == -1


def test_parsing_records_raises_only_our_error() -> None:
    """Every one-byte change of a batch is either readable or raises MalformedBatch."""
    batch = bytearray(build_batch(RECORDS[:3]))
    for position in range(61, len(batch)):
        kept = batch[position]
        for byte in range(0, 256, 5):
            batch[position] = byte
            with contextlib.suppress(MalformedBatch):
                list(RecordBatch(batch).records())
        batch[position] = kept


def test_a_header_key_that_is_not_utf_8_passes_through() -> None:
    """A broker does not validate header keys."""
    batch = record_body(b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01")
    record = next(RecordBatch(batch).records())
    assert bytes(build_batch([record])[61:]) == batch[61:]
