"""Record formats compared with Apache Kafka's own classes: reading, building, and every conversion
of a broker, in both directions, with error codes.

Uncompressed data must have equal bytes; compressed data of Kafka is read and compared, record by
record.
"""

import subprocess
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from kraftsim.partitions.rules_append import AssignedRecords, LogFormat, assign_offsets
from protocol.records.batches import RecordBatch, TimestampType, build_batch
from protocol.records.down_conversion import down_convert, down_convert_in_pieces
from protocol.records.message_sets import AnyBatch, build_message_set, split_any_batches
from protocol.records.record import NO_TIMESTAMP, Compression, MalformedBatch, Record
from tests.apache_kafka.class_path import class_path, java
from tests.wire.record_samples import OLD_CODECS, RECORDS, TIME, logged, produced

HERE = Path(__file__).parent
NOW = TIME + 77
BASE_OFFSET = 100
LEADER_EPOCH = 7
NO_CLOCK = -1

pytestmark = pytest.mark.interop


def asked(lines: Sequence[str]) -> list[str]:
    """Return Apache Kafka's reply to each line (RecordFormats.java)."""
    program, jars = java(), ":".join(map(str, class_path()))
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(
        [program, "-cp", jars, HERE / "RecordFormats.java"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers


def shown(batch: AnyBatch) -> str:
    """Return a batch in the format of RecordFormats.java."""
    clock = NO_CLOCK if batch.timestamp_type is None else int(batch.timestamp_type)
    head: list[object] = [
        batch.magic,
        batch.last_offset,
        batch.crc_is_valid(),
        int(batch.compression),
        clock,
        batch.max_timestamp,
    ]
    if isinstance(batch, RecordBatch):
        horizon = batch.delete_horizon_ms
        head += [
            -1 if horizon is None else horizon,
            batch.is_transactional,
            batch.is_control,
            batch.producer_id,
            batch.producer_epoch,
            batch.last_sequence,
        ]
    else:
        head += [-1, False, False, -1, -1, -1]
    text = " ".join(str(each).lower() if isinstance(each, bool) else str(each) for each in head)
    for record in batch.records():
        key, value = ("-" if each is None else each.hex() for each in (record.key, record.value))
        text += f"|{record.offset}:{record.timestamp}:{key}:{value}:{len(record.headers)}"
    return f"[{text}]"


def deep(data: bytes) -> list[object]:
    """Return the content of batches, independent of the compressed bytes."""
    return [
        (
            batch.magic,
            batch.last_offset,
            batch.attributes,
            batch.max_timestamp,
            batch.crc_is_valid(),
            list(batch.records()),
        )
        for batch in split_any_batches(data)
    ]


def same(theirs: bytes, ours: bytes) -> bool:
    """Compare bytes, or the content of compressed data."""
    if any(batch.compression is not Compression.NONE for batch in split_any_batches(ours)):
        return deep(theirs) == deep(ours)
    return theirs == ours


def refused_alike(answer: str, ours: object) -> bool:
    """Whether both sides refuse with the same error code, or neither does."""
    if answer.startswith("!"):
        return isinstance(ours, MalformedBatch) and int(answer.split()[1]) == ours.error_code
    return not isinstance(ours, MalformedBatch)


def test_batches_of_every_format_are_read_as_by_kafka() -> None:
    samples = {
        **logged(),
        **{name: data for name, data in produced().items() if name.startswith("format ")},
    }
    answers = asked([f"read {data.hex()}" for data in samples.values()])
    for (name, data), answer in zip(samples.items(), answers, strict=True):
        assert "".join(map(shown, split_any_batches(data))) == answer, name


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_are_built_as_kafka_builds_them(magic: int) -> None:
    cases = list(product(OLD_CODECS, (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)))
    fields = " ".join(
        f"{each.offset + 9}:{each.timestamp}:{_hex(each.key)}:{_hex(each.value)}"
        for each in RECORDS
    )
    moved = [record._replace(offset=record.offset + 9) for record in RECORDS]
    answers = asked(
        [
            f"build {magic} {codec:d} {clock:d} 9 {NOW if clock else NO_TIMESTAMP} {fields}"
            for codec, clock in cases
        ]
    )
    for (codec, clock), answer in zip(cases, answers, strict=True):
        ours = build_message_set(
            moved,
            magic=magic,
            base_offset=9,
            compression=codec,
            append_timestamp=NOW if clock else None,
        )
        assert same(bytes.fromhex(answer), ours), (codec, clock)


def test_offsets_and_conversion_of_a_leader_match_kafka() -> None:
    """LogValidator: every sample, into every format, with every codec and both clocks."""
    clocks = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)
    cases = list(product(produced().items(), (0, 1, 2), (None, *Compression), clocks))
    lines = [
        (
            f"assign {magic} {-1 if codec is None else codec} {clock:d} {BASE_OFFSET} "
            f"{LEADER_EPOCH} {NOW} {data.hex()}"
        )
        for (_, data), magic, codec, clock in cases
    ]
    for ((name, data), magic, codec, clock), answer in zip(cases, asked(lines), strict=True):
        case = (name, magic, codec, clock, answer[:200])
        ours = _assigned(data, LogFormat(magic=magic, compression=codec, timestamp_type=clock))
        assert refused_alike(answer, ours), (case, ours)
        if not isinstance(ours, MalformedBatch):
            last_offset, max_timestamp, was_rebuilt, theirs = answer.split(" ")
            assert (ours.last_offset, ours.max_timestamp, ours.was_rebuilt) == (
                int(last_offset),
                int(max_timestamp),
                was_rebuilt == "true",
            ), case
            assert same(bytes.fromhex(theirs), ours.data), case


def test_data_compressed_by_kafka_is_read_at_every_size() -> None:
    """Its compressors stream: frames have no content size, and blocks end where buffers were
    full.
    """
    values = (
        b"",
        b"value " * 100_000,
        b"".join(number.to_bytes(4) for number in range(60_000)),
        bytes(number * number % 251 for number in range(150_000)),
    )
    records = [Record(number, TIME + number, None, value) for number, value in enumerate(values)]
    codecs = [codec for codec in Compression if codec is not Compression.NONE]
    plain = build_batch(records)
    for codec, answer in zip(
        codecs,
        asked([f"assign 2 {codec:d} 0 0 0 {NOW} {plain.hex()}" for codec in codecs]),
        strict=True,
    ):
        batch = RecordBatch(bytes.fromhex(answer.split(" ")[3]))
        assert (
            batch.compression is codec and batch.crc_is_valid() and list(batch.records()) == records
        ), codec


def test_down_conversion_matches_kafka() -> None:
    """RecordsUtil.downConvert, and the same in chunks into a response with an announced size
    (KIP-283).
    """
    cases = list(
        product(logged().items(), (0, 1), (0, 51, 53, 62), (down_convert, down_convert_in_pieces))
    )
    lines = [
        f"{'down' if convert is down_convert else 'pieces'} {magic} {first} {data.hex()}"
        for (_, data), magic, first, convert in cases
    ]
    for ((name, data), magic, first, convert), answer in zip(cases, asked(lines), strict=True):
        case = (name, magic, first, convert.__name__, answer[:200])
        ours: bytes | MalformedBatch
        try:
            if convert is down_convert:
                ours = down_convert(split_any_batches(data), to_magic=magic, first_offset=first)
            else:
                ours = down_convert_in_pieces(data, to_magic=magic, first_offset=first)
        except MalformedBatch as refused:
            ours = refused
        assert refused_alike(answer, ours), (case, ours)
        if isinstance(ours, bytes):
            assert same(bytes.fromhex(answer), ours), case


def _assigned(data: bytes, log_format: LogFormat) -> AssignedRecords | MalformedBatch:
    try:
        return assign_offsets(
            data,
            base_offset=BASE_OFFSET,
            leader_epoch=LEADER_EPOCH,
            now_ms=NOW,
            log_format=log_format,
        )
    except MalformedBatch as refused:
        return refused


def _hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex()
