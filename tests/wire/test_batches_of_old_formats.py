"""Message sets of formats 0 and 1: their bytes, their wrappers, their conversion in both
directions, and their errors.
"""

import contextlib
from collections.abc import Callable

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from kraftsim.partitions.rules_append import LogFormat, assign_offsets
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch, TimestampType, split_batches
from protocol.records.down_conversion import down_convert, down_convert_in_pieces
from protocol.records.message_sets import (
    OldMessage,
    build_message,
    build_message_set,
    open_batch,
    split_any_batches,
)
from protocol.records.record import (
    LZ4_HEADER,
    WRONG_LZ4_HEADER,
    Compression,
    MalformedBatch,
    MalformedRecord,
    Record,
    TornBatch,
    UnconvertibleBatch,
    UndecodableRecords,
    UnsupportedMagic,
    compress,
    decompress,
    xxh32_of_few,
)
from tests.wire.record_samples import (
    OLD_CODECS,
    RECORDS,
    TIME,
    batch_at,
    logged,
    marker_at,
    message_set_at,
    produced,
)

PLAIN = (Compression.NONE, Compression.GZIP)
"""Codecs that kafka-python reads without further libraries."""
FORMAT_1 = bytes.fromhex(
    "0000000000000005000000189cf153360100000000000000000700000001610000000162"
    "00000000000000060000001677f7dbc101000000000000000008ffffffffffffffff"
)
"""Two messages built by Apache Kafka 3.9.1: offsets 5 and 6, timestamps 7 and 8, ("a", "b") and
(null, null).
"""


def records_of(data: bytes) -> list[Record]:
    return [record for batch in split_any_batches(data) for record in batch.records()]


def timed(magic: int, records: tuple[Record, ...] = RECORDS) -> list[Record]:
    """Return records as stored in a format."""
    return [record if magic else record._replace(timestamp=-1) for record in records]


def test_messages_are_read_and_built_byte_for_byte() -> None:
    assert (
        build_message_set([Record(5, 7, b"a", b"b"), Record(6, 8)], magic=1, base_offset=5)
        == FORMAT_1
    )
    first, second = split_any_batches(memoryview(b"xyz" + FORMAT_1), 3)
    assert isinstance(first, OldMessage) and isinstance(second, OldMessage)
    assert (
        first.magic,
        first.last_offset,
        first.next_offset,
        first.base_offset,
        first.timestamp,
        first.size_bytes,
    ) == (1, 5, 6, 5, 7, 36)
    assert (first.key, first.value, second.key, second.value) == (b"a", b"b", None, None)
    assert (
        first.crc_is_valid()
        and second.crc_is_valid()
        and first.timestamp_type is TimestampType.CREATE_TIME
    )
    assert first.view() == FORMAT_1[:36]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_built_message_sets_are_read_back(magic: int, codec: Compression) -> None:
    """Compressed, all records are in one wrapper with the offset of the last and the newest
    timestamp (KIP-31, KIP-32).
    """
    data = message_set_at(50, magic, codec)
    messages = list(split_any_batches(data))
    assert len(messages) == (len(RECORDS) if codec is Compression.NONE else 1) and all(
        message.crc_is_valid() for message in messages
    )
    assert records_of(data) == timed(
        magic, tuple(record._replace(offset=record.offset + 50) for record in RECORDS)
    )
    if codec is not Compression.NONE:
        wrapper = OldMessage(data)
        assert (wrapper.base_offset, wrapper.last_offset, wrapper.max_timestamp) == (
            50,
            53,
            TIME + 9 if magic else -1,
        )
        assert [message.offset for message in wrapper.inner_messages()] == [
            offset + (0 if magic else 50) for offset in range(4)
        ]


def test_the_append_time_of_a_wrapper_applies_to_its_records() -> None:
    assert {
        record.timestamp for record in records_of(message_set_at(0, 1, Compression.GZIP, TIME + 99))
    } == {TIME + 99}
    stamped = OldMessage(
        b"".join(
            OldMessage(message_set_at(0, 1, Compression.GZIP)).with_timestamp(
                80, TimestampType.LOG_APPEND_TIME, TIME + 7
            )
        )
    )
    assert stamped.crc_is_valid() and stamped.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [(record.offset, record.timestamp) for record in stamped.records()] == [
        (77 + number, TIME + 7) for number in range(4)
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_other_libraries_read_our_message_sets(magic: int, codec: Compression) -> None:
    data = message_set_at(50, magic, codec)
    expected = [
        (record.offset + 50, record.timestamp if magic else None, record.key, record.value)
        for record in RECORDS
    ]
    readers = [KafkaPythonRecords] if codec in PLAIN else []
    if (magic, codec) != (
        0,
        Compression.LZ4,
    ):  # aiokafka cannot read the wrong checksum of format 0
        readers.append(AiokafkaRecords)
    for reader in readers:
        batches, found = reader(data), []
        while (batch := batches.next_batch()) is not None:
            assert batch.validate_crc()
            found += [
                (record.offset, record.timestamp, record.key, record.value) for record in batch
            ]
        assert found == expected


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_we_read_message_sets_of_other_libraries(magic: int, codec: Compression) -> None:
    builders = [KafkaPythonBuilder] if codec in PLAIN else []
    if (magic, codec) != (0, Compression.LZ4):
        builders.append(AiokafkaBuilder)
    for library in builders:
        builder = library(magic, codec, 1 << 20)
        for record in RECORDS:
            builder.append(
                record.offset, timestamp=record.timestamp, key=record.key, value=record.value
            )
        data = bytes(builder.build())
        assert records_of(data) == timed(magic) and all(
            batch.crc_is_valid() for batch in split_any_batches(data)
        )


def test_lz4_of_format_0_has_the_wrong_checksum_of_early_clients() -> None:
    """KAFKA-3160: computed over the magic number too.

    The byte is Apache Kafka's own; readers of format 0 accept any.
    """
    assert (LZ4_HEADER[-1], WRONG_LZ4_HEADER[-1]) == (0x82, 0x1A)
    data = b"value " * 30_000
    old = compress(Compression.LZ4, data, 0)
    assert old[:7] == WRONG_LZ4_HEADER and old[7:] == compress(Compression.LZ4, data)[7:]
    assert (
        decompress(Compression.LZ4, old, 0)
        == decompress(Compression.LZ4, compress(Compression.LZ4, data), 0)
        == data
    )
    with pytest.raises(UndecodableRecords):
        decompress(Compression.LZ4, old, 1)


@pytest.mark.parametrize(
    "data, value", [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)]
)
def test_xxh32_of_short_texts(data: bytes, value: int) -> None:
    """The well-known test vectors; complete 4-byte lanes are in the header of format 0."""
    assert xxh32_of_few(data) == value


def test_a_log_of_mixed_formats_is_iterated_by_batch() -> None:
    data = message_set_at(10, 0) + message_set_at(14, 1, Compression.GZIP) + batch_at(18)
    batches = split_any_batches(data + batch_at(22)[:-1])
    assert [(batch.magic, batch.base_offset, batch.last_offset) for batch in batches] == [
        (0, 10, 10), (0, 11, 11), (0, 12, 12), (0, 13, 13), (1, 14, 17), (2, 18, 21),
    ]  # fmt: skip
    assert batches.is_torn and batches.end_position == len(data)
    with pytest.raises(UnsupportedMagic):
        list(split_batches(data))


@pytest.mark.parametrize("to_magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_down_conversion_drops_headers_and_control_records(
    to_magic: int, codec: Compression
) -> None:
    """RecordsUtil.downConvert: also transactional batches; records before the requested offset are
    kept only in compressed batches.
    """
    headed = tuple(record._replace(headers=(("h", b"1"),)) for record in RECORDS)
    data = batch_at(
        50,
        headed,
        compression=codec,
        transactional=True,
        producer_id=5,
        producer_epoch=1,
        base_sequence=0,
    ) + marker_at(54)
    converted = down_convert(split_any_batches(data), to_magic=to_magic, first_offset=52)
    expected = timed(
        to_magic, tuple(record._replace(offset=record.offset + 50) for record in RECORDS)
    )
    assert records_of(converted) == (expected[2:] if codec is Compression.NONE else expected)
    assert {batch.magic for batch in split_any_batches(converted)} == {to_magic}


def test_batches_in_an_older_format_are_not_converted() -> None:
    data = message_set_at(10, 0, Compression.GZIP) + message_set_at(14, 1)
    assert down_convert(split_any_batches(data), to_magic=1, first_offset=99) == data
    assert down_convert(split_any_batches(data), to_magic=0, first_offset=0) == message_set_at(
        10, 0, Compression.GZIP
    ) + message_set_at(14, 0)


def test_zstd_is_refused_or_ends_a_started_down_conversion() -> None:
    zstd = batch_at(55, compression=Compression.ZSTD)
    for convert in (
        down_convert_in_pieces,
        lambda data, **options: down_convert(split_any_batches(data), **options),
    ):
        with pytest.raises(UnconvertibleBatch) as refused:
            convert(zstd, to_magic=1, first_offset=0)
        assert refused.value.error_code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    behind = down_convert_in_pieces(batch_at(50) + zstd, to_magic=1, first_offset=0)
    assert len(records_of(behind)) == len(RECORDS)


@pytest.mark.parametrize("name", sorted(logged()))
def test_a_down_converted_fetch_response_has_the_announced_size(name: str) -> None:
    """KIP-283: missing bytes are filled with an incomplete message, excess bytes are cut off; an
    old consumer treats both as a partial message.
    """
    data = logged()[name]
    for to_magic in (0, 1):
        try:
            sent = down_convert_in_pieces(data, to_magic=to_magic, first_offset=0)
        except UnconvertibleBatch:
            continue
        first = next(
            (
                out
                for batch in split_any_batches(data)
                if (out := down_convert([batch], to_magic=to_magic, first_offset=0))
            ),
            b"",
        )
        assert len(sent) == (
            max(len(data), len(first)) if first else 12 * any(split_any_batches(data))
        )
        assert all(batch.magic <= to_magic for batch in split_any_batches(sent))


@pytest.mark.parametrize("to_magic", [0, 1, 2])
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_leader_up_converts_batches_and_keeps_their_codec(
    magic: int, codec: Compression, to_magic: int
) -> None:
    """LogValidator: the format of the log, offsets from its end on, records as sent."""
    data = batch_at(0, compression=codec) if magic == 2 else message_set_at(0, magic, codec)
    assigned = assign_offsets(
        data,
        base_offset=100,
        leader_epoch=7,
        now_ms=TIME + 99,
        log_format=LogFormat(magic=to_magic),
    )
    expected = timed(
        min(magic, to_magic),
        tuple(record._replace(offset=record.offset + 100) for record in RECORDS),
    )
    assert records_of(assigned.data) == expected and assigned.last_offset == 103
    batches = list(split_any_batches(assigned.data))
    assert {(batch.magic, batch.compression, batch.crc_is_valid()) for batch in batches} == {
        (to_magic, codec, True)
    }
    assert all(
        batch.partition_leader_epoch == 7 for batch in batches if isinstance(batch, RecordBatch)
    )
    assert assigned.max_timestamp == (TIME + 9 if min(magic, to_magic) else -1)
    is_unchanged = magic == to_magic and (magic > 0 or codec is Compression.NONE)
    assert assigned.was_rebuilt is not is_unchanged


def test_offsets_and_append_time_are_set_in_place_if_possible() -> None:
    """Compressed records of format 1 keep the bytes of the producer; only the wrapper changes."""
    sent = message_set_at(0, 1, Compression.SNAPPY)
    log_format = LogFormat(magic=1, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assigned = assign_offsets(
        sent, base_offset=100, leader_epoch=7, now_ms=TIME + 99, log_format=log_format
    )
    assert not assigned.was_rebuilt and assigned.data[30:] == sent[30:]
    assert [(record.offset, record.timestamp) for record in records_of(assigned.data)] == [
        (100 + number, TIME + 99) for number in range(4)
    ]


@pytest.mark.parametrize(
    "name, to_magic, code",
    [
        ("formats 0 and 1", 2, ErrorCode.INVALID_RECORD),
        ("two wrappers", 2, ErrorCode.INVALID_RECORD),
        ("two batches", 2, ErrorCode.INVALID_RECORD),
        ("nothing whole", 2, ErrorCode.INVALID_RECORD),
        ("a base offset", 2, ErrorCode.INVALID_RECORD),
        ("a control batch", 2, ErrorCode.INVALID_RECORD),
        ("a wrong checksum", 2, ErrorCode.CORRUPT_MESSAGE),
        ("a wrong checksum in format 1", 2, ErrorCode.CORRUPT_MESSAGE),
        ("a wrong checksum in a wrapper", 2, ErrorCode.CORRUPT_MESSAGE),
        ("format 0 in a wrapper of format 1", 2, ErrorCode.INVALID_RECORD),
        ("a wrapper in a wrapper", 2, ErrorCode.INVALID_RECORD),
        ("nothing in a wrapper", 2, ErrorCode.INVALID_RECORD),
        ("format 1 without append time", 2, ErrorCode.INVALID_TIMESTAMP),
        ("format 2 NONE of a producer", 1, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ("format 2 GZIP in a transaction", 0, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ("format 2 ZSTD", 1, ErrorCode.UNKNOWN_SERVER_ERROR),
        ("headers", 1, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_leader_refuses_invalid_message_sets(name: str, to_magic: int, code: ErrorCode) -> None:
    """The error codes are those of Apache Kafka 3.9.1, compared in test_batches_beside_kafka."""
    with pytest.raises(MalformedBatch) as refused:
        assign_offsets(
            produced()[name],
            base_offset=0,
            leader_epoch=0,
            now_ms=TIME,
            log_format=LogFormat(magic=to_magic),
        )
    assert refused.value.error_code is code


WRAPPER = message_set_at(50, 1, Compression.GZIP)


@pytest.mark.parametrize(
    "make, error",
    [
        (lambda: FORMAT_1[:11], TornBatch),
        (lambda: FORMAT_1[:16], TornBatch),
        (lambda: FORMAT_1[:35], TornBatch),
        (lambda: FORMAT_1[:8] + bytes((0, 0, 0, 13)) + FORMAT_1[12:], MalformedBatch),
        (lambda: FORMAT_1[:8] + b"\xff" * 4 + FORMAT_1[12:], MalformedBatch),
        (lambda: FORMAT_1[:8] + bytes((0, 0, 0, 21)) + FORMAT_1[12:], MalformedBatch),
        (lambda: FORMAT_1[:16] + b"\x03" + FORMAT_1[17:], UnsupportedMagic),
        (lambda: FORMAT_1[:16] + b"\xff" + FORMAT_1[17:], UnsupportedMagic),
        (lambda: FORMAT_1[:26] + b"\x7f" + FORMAT_1[27:36], MalformedRecord),
        (lambda: FORMAT_1[:31] + b"\x7f" + FORMAT_1[32:36], MalformedRecord),
        (lambda: FORMAT_1[:29] + b"\x03" + FORMAT_1[30:36], MalformedRecord),
        (lambda: build_message(1, 0, 7, TIME, None, b""), UndecodableRecords),
        (
            lambda: build_message(
                1, 0, Compression.ZSTD, TIME, None, compress(Compression.ZSTD, FORMAT_1)
            ),
            MalformedRecord,
        ),
        (lambda: build_message(1, 0, Compression.GZIP, TIME, None, None), MalformedRecord),
        (lambda: build_message(1, 0, Compression.GZIP, TIME, None, b"garbage"), UndecodableRecords),
        (
            lambda: build_message(
                1, 0, Compression.GZIP, TIME, None, compress(Compression.GZIP, FORMAT_1[:30])
            ),
            MalformedRecord,
        ),
        (
            lambda: build_message(
                1, 5, Compression.GZIP, TIME, None, compress(Compression.GZIP, FORMAT_1)
            ),
            MalformedRecord,
        ),
        (
            lambda: build_message(
                1,
                2**63 - 1,
                Compression.GZIP,
                TIME,
                None,
                compress(Compression.GZIP, FORMAT_1[:36] + b"\x80" + bytes(7) + FORMAT_1[8:36]),
            ),
            MalformedRecord,
        ),
        (
            lambda: build_message(
                1,
                9,
                Compression.GZIP,
                TIME,
                None,
                compress(Compression.GZIP, message_set_at(0, 1, Compression.GZIP)),
            ),
            MalformedRecord,
        ),
    ],
)
def test_bad_message_sets_are_refused(
    make: Callable[[], bytes], error: type[MalformedBatch]
) -> None:
    with pytest.raises(error):
        list(open_batch(make()).records())


@pytest.mark.parametrize(
    "data",
    [FORMAT_1, WRAPPER, message_set_at(0, 0, Compression.LZ4)],
    ids=["plain", "gzip", "lz4 of format 0"],
)
def test_a_changed_byte_is_read_or_refused(data: bytes) -> None:
    for position in range(len(data)):
        for byte in (0, 1, 0x7F, 0x80, 0xFF):
            with contextlib.suppress(MalformedBatch):
                records_of(data[:position] + bytes((byte,)) + data[position + 1 :])
        with contextlib.suppress(MalformedBatch):
            assert len(records_of(data[:position])) < 4
