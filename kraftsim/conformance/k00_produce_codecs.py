"""Produce (0) to a topic with compression.type: batches with another codec are recompressed.

Source: compression.type of a topic; KIP-110; LogValidator, UnifiedLog.append.
"""

from kraftsim.conformance.batches import batch, produce, produce_versions
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.k01_fetch import fetched_records
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from protocol.records.batches import (
    CRC,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    build_batch,
    checksum_of,
    split_batches,
)
from protocol.records.record import Compression, Record, compress

REQUIREMENTS = Requirements("produce", 4, "Topics with compression.type")
ZSTD_SINCE = 7
LENGTH_POSITION, CRC_POSITION = 8, 17
ZEROS_BYTES = 20 << 20
NAMES = {
    codec: "uncompressed" if codec is Compression.NONE else codec.name.lower()
    for codec in Compression
}


@REQUIREMENTS.that(
    1,
    "a batch is stored with the codec of its topic, and is otherwise unchanged",
    source="compression.type",
)
def recompressed(target: Target) -> None:
    for kept, name in NAMES.items():
        topic = target.topic(configs={"compression.type": name})
        producer_id, epoch = target.producer_id()
        with target.peer(topic.leader) as peer:
            for number, sent in enumerate(Compression):
                values = [
                    Record(
                        timestamp=1000 + at,
                        key=b"k",
                        value=b"value %d" % at,
                        headers=(("h", b"1"),),
                    )
                    for at in range(3)
                ]
                records = build_batch(
                    values,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=3 * number,
                    compression=sent,
                )
                row = produce(peer, topic.name, records)
                expect_equal(
                    (row.error_code, row.base_offset),
                    (0, 3 * number),
                    f"{sent.name} to {name}: error, offset",
                )
        found = list(split_batches(fetched_records(target, topic)))
        expect_equal(
            [each.attributes for each in found],
            [int(kept)] * len(Compression),
            f"{name}: attributes in the log",
        )
        for number, each in enumerate(found):
            expect(each.crc_is_valid(), f"{name}: the checksum of batch {number} is wrong")
            producer = (each.producer_id, each.producer_epoch, each.base_sequence)
            expect_equal(
                producer,
                (producer_id, epoch, 3 * number),
                f"{name}, batch {number}: producer id, epoch, sequence",
            )
            expected = [
                (3 * number + at, 1000 + at, b"k", b"value %d" % at, (("h", b"1"),))
                for at in range(3)
            ]
            expect_equal(
                [tuple(record) for record in each.records()],
                expected,
                f"{name}, batch {number}: records",
            )


@REQUIREMENTS.that(
    2,
    "a batch that exceeds the limit of its topic after recompression is rejected with "
    "MESSAGE_TOO_LARGE",
    source="UnifiedLog.append",
)
def grown(target: Target) -> None:
    limit = {"compression.type": "uncompressed", "max.message.bytes": "1000"}
    records = build_batch([Record(timestamp=1, value=bytes(5000))], compression=Compression.GZIP)
    topic = target.topic(configs=limit)
    with target.peer(topic.leader) as peer:
        for version in produce_versions(target):
            row = produce(peer, topic.name, records, version)
            expect_equal(
                (row.error_code, row.base_offset),
                (ErrorCode.MESSAGE_TOO_LARGE, -1),
                f"version {version}: error, offset",
            )
    expect_equal(fetched_records(target, topic), b"", "the content of the log")


@REQUIREMENTS.that(
    3,
    "a duplicate batch is recognised although the log recompressed the first one",
    source="ProducerStateEntry.findDuplicateBatch",
)
def repeated(target: Target) -> None:
    topic = target.topic(configs={"compression.type": "zstd"})
    producer_id, epoch = target.producer_id()
    records = batch(
        4,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        compression=Compression.GZIP,
    )
    with target.peer(topic.leader) as peer:
        for _ in range(2):
            row = produce(peer, topic.name, records)
            expect_equal((row.error_code, row.base_offset), (0, 0), "error, offset")
    expect_equal(len(list(split_batches(fetched_records(target, topic)))), 1, "batches in the log")


@REQUIREMENTS.that(
    4, "LogAppendTime and compression.type can be combined", source="KIP-32; compression.type"
)
def stamped(target: Target) -> None:
    topic = target.topic(
        configs={"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"}
    )
    with target.peer(topic.leader) as peer:
        row = produce(
            peer,
            topic.name,
            build_batch([Record(timestamp=1000 + at, value=b"x") for at in range(3)]),
        )
    expect_error(row.error_code, ErrorCode.NONE, "LogAppendTime and gzip")
    (found,) = split_batches(fetched_records(target, topic))
    expect_equal(
        {record.timestamp for record in found.records()},
        {row.log_append_time_ms},
        "timestamps in the log, and in the response",
    )
    expect_equal(
        (found.compression, found.crc_is_valid()),
        (Compression.GZIP, True),
        "codec, checksum is right",
    )


@REQUIREMENTS.that(
    5,
    "compressed bytes that are no records are rejected with INVALID_RECORD, whatever their number",
    source="DefaultRecord.readFrom",
)
def zeros(target: Target) -> None:
    topic = target.topic()
    block = compress(Compression.GZIP, bytes(ZEROS_BYTES))
    records = (
        bytearray(
            build_batch([Record(timestamp=1, value=b"x")], compression=Compression.GZIP)[
                :HEADER_SIZE_BYTES
            ]
        )
        + block
    )
    records[LENGTH_POSITION : LENGTH_POSITION + 4] = (
        len(records) - LENGTH_OVERHEAD_BYTES
    ).to_bytes(4)
    CRC.pack_into(records, CRC_POSITION, checksum_of(records))
    with target.peer(topic.leader) as peer:
        row = produce(peer, topic.name, bytes(records))
        expect_error(row.error_code, ErrorCode.INVALID_RECORD, f"gzip of {ZEROS_BYTES} zeros")
    expect_equal(fetched_records(target, topic), b"", "the content of the log")
