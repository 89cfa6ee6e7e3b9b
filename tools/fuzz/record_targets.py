"""Targets that read records: batches and message sets with all conversions of a broker, and
compressed blocks alone.

Checksums are corrected first, otherwise no code after the check would be reached. The limit for
decompressed blocks is lowered, otherwise most time would be spent on zeros.
"""

import zlib
from collections.abc import Callable, Iterator
from functools import wraps

from crc32c import crc32c

from kraftsim.partitions.rules_append import LogFormat, assign_offsets
from protocol.malformed import MalformedMessage
from protocol.records import record
from protocol.records.batches import (
    COVERED_POSITION,
    MAGIC_POSITION,
    RecordBatch,
    TimestampType,
    build_batch,
)
from protocol.records.control_records import (
    ControlType,
    SnapshotHeaderRecord,
    VotersRecord,
    build_control_batch,
    build_leader_change,
    parse_control_record,
)
from protocol.records.down_conversion import down_convert, down_convert_in_pieces
from protocol.records.message_sets import AnyBatch, OldMessage, split_any_batches
from protocol.records.record import (
    NO_TIMESTAMP,
    Compression,
    MalformedBatch,
    Record,
    compress,
    decompress,
)
from tests.wire.record_samples import logged, produced

PLAIN_BYTES_MAX = 1 << 20
SEED_BYTES_MAX = 4096
OFFSETS_MAX = 1 << 40
BATCH_CRC_POSITION = 17
MESSAGE_CRC_POSITION = 12


def _with_small_blocks(check: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Bound what a block unpacks to during a check, and only then: other tests of this process
    unpack more.
    """

    @wraps(check)
    def bounded(data: bytes) -> None:
        usual = record.PLAIN_BYTES_MAX
        record.PLAIN_BYTES_MAX = PLAIN_BYTES_MAX
        try:
            check(data)
        finally:
            record.PLAIN_BYTES_MAX = usual

    return bounded


@_with_small_blocks
def check_batches(data: bytes) -> None:
    """Read batches of any format, and process them like a broker; the first byte chooses formats
    and codecs.
    """
    choice, data = data[0] if data else 0, with_right_checksums(data[1:])
    refused: MalformedMessage | None = None
    splitter = split_any_batches(data)
    try:
        for batch in splitter:
            _check_batch(batch)
    except MalformedMessage as error:
        refused = error
    assert splitter.end_position <= len(data), "a walk beyond the end"
    log_format = LogFormat(
        magic=choice % 3,
        compression=(None, *Compression)[choice // 3 % 6],
        timestamp_type=TimestampType(choice // 18 % 2),
    )
    try:
        assigned = assign_offsets(
            data, base_offset=100, leader_epoch=7, now_ms=1_700_000_000_000, log_format=log_format
        )
        batches = list(split_any_batches(assigned.data))
        assert all(batch.crc_is_valid() and batch.magic == log_format.magic for batch in batches), (
            "a leader wrote a batch that followers reject"
        )
        assert batches[-1].last_offset == assigned.last_offset, (
            "the assigned offsets differ from those written"
        )
        if assigned.was_rebuilt:
            offsets = [record.offset for batch in batches for record in batch.records()]
            assert offsets == list(range(100, assigned.last_offset + 1)), (
                "a leader skipped or repeated an offset"
            )
    except MalformedMessage as error:
        refused = error
    conversions: tuple[Callable[[], bytes], ...] = (
        lambda: down_convert(split_any_batches(data), to_magic=choice % 2, first_offset=choice),
        lambda: _in_pieces(data, choice),
    )
    for convert in conversions:
        try:
            assert all(batch.magic <= choice % 2 for batch in split_any_batches(convert())), (
                "an old consumer got a new format"
            )
        except MalformedMessage as error:
            refused = error
    if refused is not None:
        raise refused


@_with_small_blocks
def check_codec(data: bytes) -> None:
    """Decompress a block; the first byte chooses the codec and the message format.

    The result is compressed and decompressed again.
    """
    if not data:
        return
    codec, magic = Compression(data[0] % len(Compression)), data[0] // len(Compression) % 3
    plain = decompress(codec, data[1:], magic)
    assert codec is Compression.NONE or len(plain) <= PLAIN_BYTES_MAX, "more than a block may hold"
    assert decompress(codec, compress(codec, plain, magic), magic) == plain


def batch_seeds() -> Iterator[bytes]:
    """Yield what producers send and what logs hold."""
    control = [
        build_control_batch(
            [(ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord(version=0))],
            base_offset=0,
            timestamp=1,
        ),
        build_control_batch(
            [(ControlType.KRAFT_VOTERS, VotersRecord(version=0))], base_offset=0, timestamp=1
        ),
        build_leader_change(
            leader_id=1,
            voters=[1, 2],
            granting_voters=[1],
            base_offset=0,
            leader_epoch=1,
            timestamp=1,
        ),
    ]
    for number, data in enumerate([*produced().values(), *logged().values(), *control]):
        if len(data) <= SEED_BYTES_MAX:
            yield bytes((number * 7 % 256,)) + data


def codec_seeds() -> Iterator[bytes]:
    """Yield small blocks of every codec, framed as each message format has it."""
    for codec in Compression:
        for magic in range(3):
            for plain in (b"", b"a", b"value " * 50, bytes(range(256))):
                yield bytes((codec + len(Compression) * magic,)) + compress(codec, plain, magic)


def with_right_checksums(data: bytes) -> bytes:
    """Return data with the checksum of every complete batch and message corrected."""
    corrected = bytearray(data)
    try:
        for batch in split_any_batches(data):
            if isinstance(batch, RecordBatch):
                covered = corrected[
                    batch.position + COVERED_POSITION : batch.position + batch.size_bytes
                ]
                position, crc = batch.position + BATCH_CRC_POSITION, crc32c(covered)
            else:
                covered = corrected[
                    batch.position + MAGIC_POSITION : batch.position + batch.size_bytes
                ]
                position, crc = batch.position + MESSAGE_CRC_POSITION, zlib.crc32(covered)
            corrected[position : position + 4] = crc.to_bytes(4)
    except MalformedBatch:
        pass
    return bytes(corrected)


def _check_batch(batch: AnyBatch) -> None:
    assert batch.crc_is_valid(), "a corrected checksum is wrong"
    assert len(batch.view()) == batch.size_bytes > 0
    records = list(batch.records())
    if isinstance(batch, OldMessage):
        assert records, "a message without records"
        return
    if batch.is_control:
        for record in records:
            parse_control_record(record.key, record.value)
    offsets = [record.offset for record in records]
    grows = all(
        before < after
        for before, after in zip((batch.base_offset - 1, *offsets), offsets, strict=False)
    )
    is_near = grows and records and abs(batch.base_offset) < OFFSETS_MAX
    if is_near and all(record.timestamp >= NO_TIMESTAMP for record in records):
        _check_rebuilt(batch, records)


def _check_rebuilt(batch: RecordBatch, records: list[Record]) -> None:
    rebuilt = build_batch(
        records,
        base_offset=batch.base_offset,
        append_timestamp=batch.max_timestamp
        if batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        else None,
        compression=batch.compression,
    )
    assert list(RecordBatch(rebuilt).records()) == records, "rebuilt records differ"


def _in_pieces(data: bytes, choice: int) -> bytes:
    return down_convert_in_pieces(data, to_magic=choice % 2, first_offset=choice)
