"""Produce (0) before version 3: message sets of formats 0 and 1, which a broker validates and
stores in format 2.

Source: KIP-31, KIP-32, KIP-98, KIP-896 (which removed it); LogValidator, UnifiedLog.append.
"""

import gzip

from kraftsim.conformance.batches import (
    ALL,
    FORMAT_2_SINCE,
    NONE,
    batch,
    produce,
    produce_request,
    wall_ms,
)
from kraftsim.conformance.expect import Inapplicable, expect, expect_equal, expect_error
from kraftsim.conformance.k01_fetch import fetched_records
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import ProduceResponse
from protocol.records.batches import RecordBatch, TimestampType, build_batch, split_batches
from protocol.records.message_sets import build_message, build_message_set
from protocol.records.record import Compression, Record

REQUIREMENTS = Requirements("produce", 3, "Message formats 0 and 1")
UNTIL = "3.9"
LOG_VALIDATOR = "LogValidator.validateMessagesAndAssignOffsets"
APPEND_TIME_SINCE = 2
FORMATS = (0, 1)
CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
BATCH_LIMIT = 1000
RECORDS = (
    Record(timestamp=1000, key=b"a", value=b"1"),
    Record(timestamp=3000, key=None, value=b"2"),
    Record(timestamp=2000, key=b"c", value=None),
)
TEXT = [(record.key, record.value) for record in RECORDS]


def _old_versions(target: Target) -> list[int]:
    """Return the versions that support old formats. Raises Inapplicable if none is served."""
    found = [version for version in target.versions(ApiKey.PRODUCE) if version < FORMAT_2_SINCE]
    if not found:
        raise Inapplicable(
            f"Produce is offered from version {target.range_of(ApiKey.PRODUCE)[0]} on"
        )
    return found


def _batches(target: Target, topic: TargetTopic) -> list[RecordBatch]:
    """Return the content of the log, as a current consumer reads it."""
    return list(split_batches(fetched_records(target, topic)))


def _refused(
    target: Target, records: bytes, error: ErrorCode, what: str, topic: TargetTopic | None = None
) -> None:
    """A message set is rejected in every old version, and the log is unchanged."""
    topic = topic or target.topic()
    with target.peer(topic.leader) as peer:
        for version in _old_versions(target):
            row = produce(peer, topic.name, records, version)
            expect_error(row.error_code, error, f"version {version}, {what}")
            expect_equal(
                (row.base_offset, row.log_append_time_ms),
                (-1, -1),
                f"version {version}, {what}: offset and time in an error response",
            )
    expect_equal(_batches(target, topic), [], f"{what}: the content of the log")


@REQUIREMENTS.that(
    1,
    "messages of formats 0 and 1 become one batch of format 2, with their original codec",
    source=LOG_VALIDATOR,
    until=UNTIL,
)
def converted(target: Target) -> None:
    for magic in FORMATS:
        for codec in CODECS:
            topic = target.topic()
            end = 0
            with target.peer(topic.leader) as peer:
                for version in _old_versions(target):
                    row = produce(
                        peer,
                        topic.name,
                        build_message_set(RECORDS, magic=magic, compression=codec),
                        version,
                    )
                    what = f"version {version}, format {magic}, {codec.name}"
                    expect_error(row.error_code, ErrorCode.NONE, what)
                    expect_equal(
                        (row.index, row.base_offset, row.log_append_time_ms),
                        (0, end, -1),
                        f"{what}: partition, offset, time",
                    )
                    end += len(RECORDS)
            found = _batches(target, topic)
            what = f"format {magic}, {codec.name}"
            expect_equal(
                [(each.base_offset, each.last_offset) for each in found],
                [(at, at + 2) for at in range(0, end, 3)],
                f"{what}: offsets",
            )
            for each in found:
                expect_equal(each.attributes, int(codec), f"{what}: attributes")
                expect(each.crc_is_valid(), f"{what}: the checksum of the batch is wrong")
                expect_equal(
                    (each.producer_id, each.producer_epoch, each.base_sequence),
                    (-1, -1, -1),
                    f"{what}: producer id, epoch, sequence",
                )
                records = list(each.records())
                expect_equal(
                    [(record.key, record.value) for record in records],
                    TEXT,
                    f"{what}: keys and values",
                )
                times = [record.timestamp for record in records]
                expect_equal(
                    times, [1000, 3000, 2000] if magic else [-1, -1, -1], f"{what}: timestamps"
                )
                expect_equal(each.max_timestamp, max(times), f"{what}: the newest timestamp")


@REQUIREMENTS.that(
    2,
    "the offsets of uncompressed messages in the request are ignored",
    source=LOG_VALIDATOR,
    until=UNTIL,
)
def own_offsets(target: Target) -> None:
    for magic in FORMATS:
        topic = target.topic()
        messages = b"".join(
            build_message(magic, offset, 0, 5, None, b"x") for offset in (77, 70, -5)
        )
        with target.peer(topic.leader) as peer:
            for number, version in enumerate(_old_versions(target)):
                row = produce(peer, topic.name, messages, version)
                expect_equal(
                    (row.error_code, row.base_offset),
                    (0, 3 * number),
                    f"version {version}, format {magic}: error, offset",
                )
        offsets = [record.offset for each in _batches(target, topic) for record in each.records()]
        expect_equal(offsets, list(range(len(offsets))), f"format {magic}: offsets in the log")


@REQUIREMENTS.that(
    3,
    "a batch of format 2 is accepted by older versions, even with zstd",
    source="ProduceRequest.validateRecords",
    until=UNTIL,
)
def newer_format(target: Target) -> None:
    topic = target.topic()
    end = 0
    with target.peer(topic.leader) as peer:
        for version in _old_versions(target):
            for codec in Compression:
                row = produce(peer, topic.name, batch(2, compression=codec), version)
                expect_equal(
                    (row.error_code, row.base_offset),
                    (0, end),
                    f"version {version}, {codec.name}: error, offset",
                )
                end += 2


@REQUIREMENTS.that(
    4,
    "without a complete message nothing is appended, without an error; an incomplete message at "
    "the end is dropped",
    source="UnifiedLog.append",
    until=UNTIL,
)
def torn(target: Target) -> None:
    topic = target.topic()
    whole = build_message_set(RECORDS, magic=1)
    with target.peer(topic.leader) as peer:
        for version in _old_versions(target):
            for records in (b"", b"12345", whole[:20]):
                row = produce(peer, topic.name, records, version)
                expect_equal(
                    (row.error_code, row.base_offset),
                    (0, -1),
                    f"version {version}, {len(records)} bytes: error, offset",
                )
        for number, version in enumerate(_old_versions(target)):
            row = produce(peer, topic.name, whole + whole[:20], version)
            expect_equal(
                (row.error_code, row.base_offset),
                (0, number * 3),
                f"version {version}, a torn tail: error, offset",
            )


@REQUIREMENTS.that(
    5,
    "a wrong checksum is rejected with CORRUPT_MESSAGE, also that of a message inside a wrapper",
    source="LegacyRecord.ensureValid",
    until=UNTIL,
)
def wrong_checksum(target: Target) -> None:
    for magic in FORMATS:
        whole = build_message_set(RECORDS, magic=magic)
        damaged = whole[:-1] + bytes([whole[-1] ^ 1])
        _refused(
            target, damaged, ErrorCode.CORRUPT_MESSAGE, f"format {magic}, the last byte changed"
        )
        wrapper = build_message(magic, 2, Compression.GZIP, 3000, None, gzip.compress(damaged))
        _refused(
            target,
            wrapper,
            ErrorCode.CORRUPT_MESSAGE,
            f"format {magic}, the last byte in a wrapper changed",
        )


@REQUIREMENTS.that(
    6,
    "a message without a complete header, and an unknown format, are rejected with CORRUPT_MESSAGE",
    source="ByteBufferLogInputStream",
    until=UNTIL,
)
def garbage(target: Target) -> None:
    whole = bytearray(build_message_set(RECORDS, magic=1))
    whole[16] = 3
    _refused(target, bytes(whole), ErrorCode.CORRUPT_MESSAGE, "format 3")
    _refused(
        target,
        bytes(8) + b"\0\0\0\5" + bytes(12),
        ErrorCode.CORRUPT_MESSAGE,
        "a message of five bytes",
    )


@REQUIREMENTS.that(
    7,
    "two wrappers, two batches of format 2, and mixed formats are rejected with INVALID_RECORD",
    source=LOG_VALIDATOR,
    until=UNTIL,
)
def not_one_batch(target: Target) -> None:
    wrapper = build_message_set(RECORDS, magic=1, compression=Compression.GZIP)
    mixed = build_message_set(RECORDS, magic=1) + build_message_set(RECORDS, magic=0)
    for what, records in {
        "two wrappers": wrapper * 2,
        "two batches": batch() * 2,
        "two formats": mixed,
    }.items():
        _refused(target, records, ErrorCode.INVALID_RECORD, what)


@REQUIREMENTS.that(
    8,
    "a transactional batch is rejected with TRANSACTIONAL_ID_AUTHORIZATION_FAILED: these "
    "versions have no transactional id",
    source="KafkaApis.handleProduceRequest",
    until=UNTIL,
)
def transactional(target: Target) -> None:
    records = build_batch(
        RECORDS, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    )
    _refused(
        target, records, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch"
    )


@REQUIREMENTS.that(
    9,
    "a message above the limit of its topic is rejected with MESSAGE_TOO_LARGE, also after "
    "conversion to format 2",
    source="UnifiedLog.append",
    until=UNTIL,
)
def too_large(target: Target) -> None:
    limit = {"max.message.bytes": str(BATCH_LIMIT)}
    for magic in FORMATS:
        large = build_message_set([Record(timestamp=1, value=bytes(BATCH_LIMIT))], magic=magic)
        _refused(
            target,
            large,
            ErrorCode.MESSAGE_TOO_LARGE,
            f"format {magic}, a large message",
            target.topic(configs=limit),
        )
        growing = build_message_set(
            [Record(timestamp=1, value=bytes(BATCH_LIMIT - 50))], magic=magic
        )
        expect(len(growing) <= BATCH_LIMIT, "the message is small enough")
        _refused(
            target,
            growing,
            ErrorCode.MESSAGE_TOO_LARGE,
            f"format {magic}, a message that grows",
            target.topic(configs=limit),
        )
        together = build_message_set([Record(timestamp=1, value=bytes(100))] * 10, magic=magic)
        _refused(
            target,
            together,
            ErrorCode.MESSAGE_TOO_LARGE,
            f"format {magic}, messages that become one batch",
            target.topic(configs=limit),
        )


@REQUIREMENTS.that(
    10,
    "a compacted topic rejects messages without a key with INVALID_RECORD",
    source="LogValidator.validateKey",
    until=UNTIL,
)
def keyless_on_compacted(target: Target) -> None:
    for magic in FORMATS:
        for codec in CODECS:
            topic = target.topic(configs={"cleanup.policy": "compact"})
            records = build_message_set(RECORDS, magic=magic, compression=codec)
            _refused(
                target, records, ErrorCode.INVALID_RECORD, f"format {magic}, {codec.name}", topic
            )


@REQUIREMENTS.that(
    11,
    "timestamps out of range are rejected with INVALID_TIMESTAMP; format 0 has no timestamps",
    source="KIP-937; LogValidator",
    since="3.6",
    until=UNTIL,
)
def timestamps_out_of_range(target: Target) -> None:
    topic = target.topic(configs={"message.timestamp.before.max.ms": "60000"})
    _refused(
        target, build_message_set(RECORDS, magic=1), ErrorCode.INVALID_TIMESTAMP, "format 1", topic
    )
    with target.peer(topic.leader) as peer:
        for version in _old_versions(target):
            expect_error(
                produce(peer, topic.name, build_message_set(RECORDS, magic=0), version).error_code,
                ErrorCode.NONE,
                f"version {version}, format 0",
            )


@REQUIREMENTS.that(
    12,
    "a topic with LogAppendTime sets the broker's clock on old messages, and returns it since "
    "version 2",
    source="KIP-32",
    until=UNTIL,
)
def append_time(target: Target) -> None:
    topic = target.topic(configs={"message.timestamp.type": "LogAppendTime"})
    returned: dict[int, int] = {}
    with target.peer(topic.leader) as peer:
        before = wall_ms()
        for version in _old_versions(target):
            for magic in FORMATS:
                for codec in CODECS:
                    row = produce(
                        peer,
                        topic.name,
                        build_message_set(RECORDS, magic=magic, compression=codec),
                        version,
                    )
                    expect_error(
                        row.error_code,
                        ErrorCode.NONE,
                        f"version {version}, format {magic}, {codec.name}",
                    )
                    returned[row.base_offset] = (
                        row.log_append_time_ms if version >= APPEND_TIME_SINCE else 0
                    )
    for each in _batches(target, topic):
        expect_equal(
            each.timestamp_type,
            TimestampType.LOG_APPEND_TIME,
            f"offset {each.base_offset}: timestamp type",
        )
        expect_equal(
            {record.timestamp for record in each.records()},
            {each.max_timestamp},
            f"offset {each.base_offset}: timestamps",
        )
        expect(
            before - 60_000 <= each.max_timestamp <= wall_ms() + 60_000,
            f"appended at {each.max_timestamp}, it is {before}",
        )
        expect(
            returned[each.base_offset] in (0, each.max_timestamp),
            f"offset {each.base_offset}: returned {returned[each.base_offset]}, stored "
            f"{each.max_timestamp}",
        )


@REQUIREMENTS.that(
    13,
    "messages with timestamp type LogAppendTime are rejected with INVALID_TIMESTAMP by a topic "
    "with LogAppendTime",
    source="LogValidator.validateTimestamp",
    until=UNTIL,
)
def wrong_timestamp_type(target: Target) -> None:
    topic = target.topic(configs={"message.timestamp.type": "LogAppendTime"})
    _refused(
        target,
        build_message_set(RECORDS, magic=1, append_timestamp=5),
        ErrorCode.INVALID_TIMESTAMP,
        "a producer's append time",
        topic,
    )


@REQUIREMENTS.that(
    14,
    "acks=0 gets no response, and the messages are in the log",
    source="KafkaApis.sendNoOpResponseExemptThrottle",
    until=UNTIL,
)
def silence(target: Target) -> None:
    topic = target.topic()
    records = build_message_set(RECORDS, magic=1)
    with target.peer(topic.leader) as peer:
        for number, version in enumerate(_old_versions(target)):
            peer.send(produce_request(topic.name, records, acks=NONE), version)
            row = produce(peer, topic.name, records, version, acks=ALL)
            expect_equal(
                (row.error_code, row.base_offset),
                (0, 6 * number + 3),
                f"version {version}: error, offset after the batch without a response",
            )


@REQUIREMENTS.that(
    15, "each partition has its own result", source="KafkaApis.handleProduceRequest", until=UNTIL
)
def each_by_itself(target: Target) -> None:
    topic = target.topic()
    records = build_message_set(RECORDS, magic=0)
    with target.peer(topic.leader) as peer:
        for version in _old_versions(target):
            asked = produce_request(topic.name, records)
            asked.topic_data[0].partition_data += (
                produce_request(topic.name, records, partition=17).topic_data[0].partition_data
            )
            answer = peer.ask(asked, version, ProduceResponse)
            found = {
                part.index: part.error_code
                for row in answer.responses
                for part in row.partition_responses
            }
            expect_equal(
                found,
                {0: ErrorCode.NONE, 17: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
                f"version {version}: errors by partition",
            )
