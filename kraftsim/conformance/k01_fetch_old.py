"""Fetch (1) before version 4: down-conversion to message sets of format 0 or 1, which limits of
bytes truncate.

Source: KIP-74, KIP-98, KIP-283, KIP-896 (which removed it); KafkaApis.handleFetchRequest,
LazyDownConversionRecords, ReplicaManager.readFromLog.
"""

import time
from collections.abc import Mapping

from kraftsim.conformance.batches import batch, filled_topic, produce
from kraftsim.conformance.expect import Inapplicable, expect, expect_equal, expect_error
from kraftsim.conformance.k01_fetch import (
    FORMAT_2_SINCE,
    LONG_MS,
    PLENTY,
    SHORT_MS,
    fetch_one,
    fetch_request,
)
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchPartition, FetchResponse, FetchTopic, PartitionData
from protocol.records.batches import TimestampType, build_batch
from protocol.records.message_sets import OldMessage, split_any_batches
from protocol.records.record import Compression, Record

REQUIREMENTS = Requirements("fetch", 2, "Down-conversion to message formats 0 and 1")
UNTIL = "3.9"
FORMAT_1_SINCE, ONE_BATCH_SINCE, ZSTD_SINCE = 2, 3, 10
LAZY = "LazyDownConversionRecords"
OLD_CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
RECORDS = (
    Record(timestamp=1000, key=b"a", value=b"1"),
    Record(timestamp=3000, key=None, value=b"2"),
    Record(timestamp=2000, key=b"c", value=None),
)


def _old_versions(target: Target) -> list[int]:
    """Return the versions that support old formats. Raises Inapplicable if none is served."""
    found = [version for version in target.versions(ApiKey.FETCH) if version < FORMAT_2_SINCE]
    if not found:
        raise Inapplicable(f"Fetch is offered from version {target.range_of(ApiKey.FETCH)[0]} on")
    return found


def _magic(version: int) -> int:
    return 1 if version >= FORMAT_1_SINCE else 0


def _read(
    target: Target,
    topic: TargetTopic,
    version: int,
    offset: int = 0,
    partition_max_bytes: int = PLENTY,
) -> tuple[PartitionData, list[OldMessage]]:
    """Fetch the only partition, and return its row with its messages, after checking their format
    and checksums.
    """
    row = fetch_one(
        target,
        topic,
        fetch_request(topic, version, offset, partition_max_bytes=partition_max_bytes),
        version,
    )
    expect_error(row.error_code, ErrorCode.NONE, f"version {version}, offset {offset}")
    messages = []
    for message in split_any_batches(bytes(row.records or b"")):
        expect(
            isinstance(message, OldMessage) and message.magic == _magic(version),
            f"version {version}: {message} has another format",
        )
        assert isinstance(message, OldMessage)
        expect(message.crc_is_valid(), f"version {version}: a wrong checksum at {message.offset}")
        messages.append(message)
    return row, messages


def _records(messages: list[OldMessage]) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.timestamp, record.key, record.value)
        for message in messages
        for record in message.records()
    ]


def _expected(
    version: int, records: tuple[Record, ...] = RECORDS, base_offset: int = 0
) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (base_offset + at, each.timestamp if _magic(version) else -1, each.key, each.value)
        for at, each in enumerate(records)
    ]


def _topic_with(
    target: Target, *batches: bytes, configs: Mapping[str, str] | None = None
) -> TargetTopic:
    topic = target.topic(configs=configs)
    with target.peer(topic.leader) as peer:
        for records in batches:
            expect_error(
                produce(peer, topic.name, records).error_code, ErrorCode.NONE, "filling a topic"
            )
    return topic


def _refused(
    target: Target,
    topic: TargetTopic,
    error: ErrorCode,
    versions: list[int],
    *,
    offset: int = 0,
    partition: int = 0,
) -> None:
    for version in versions:
        row = fetch_one(
            target,
            topic,
            fetch_request(topic, version, offset, partition=partition, max_wait_ms=LONG_MS),
            version,
        )
        expect_error(row.error_code, error, f"version {version}")
        expect_equal(
            (row.high_watermark, bytes(row.records or b"")),
            (-1, b""),
            f"version {version}: high watermark, records in an error response",
        )


@REQUIREMENTS.that(
    1,
    "versions 0 and 1 return format 0, versions 2 and 3 format 1, with the codec of the batch",
    source=LAZY,
    until=UNTIL,
)
def converted(target: Target) -> None:
    for codec in OLD_CODECS:
        topic = _topic_with(
            target, build_batch(RECORDS, compression=codec), build_batch(RECORDS, compression=codec)
        )
        for version in _old_versions(target):
            for first in (0, 3):
                row, messages = _read(target, topic, version, first)
                what = f"version {version}, {codec.name}, from offset {first}"
                expect_equal(row.high_watermark, 6, f"{what}: high watermark")
                of_first_batch = [each for each in messages if each.offset < first + 3]
                expect_equal(
                    _records(of_first_batch),
                    _expected(version, base_offset=first),
                    f"{what}: records",
                )
                expect_equal(
                    len(of_first_batch),
                    3 if codec is Compression.NONE else 1,
                    f"{what}: messages of the first batch",
                )
                expect_equal(
                    {each.attributes for each in messages}, {int(codec)}, f"{what}: attributes"
                )


@REQUIREMENTS.that(
    2,
    "headers, producer ids and sequences are dropped",
    source="KIP-98: older formats have no place for them",
    until=UNTIL,
)
def what_is_lost(target: Target) -> None:
    producer_id, epoch = target.producer_id()
    rich = tuple(record._replace(headers=(("h", b"1"),)) for record in RECORDS)
    topic = _topic_with(
        target, build_batch(rich, producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
    )
    for version in _old_versions(target):
        expect_equal(
            _records(_read(target, topic, version)[1]),
            _expected(version),
            f"version {version}: records",
        )


@REQUIREMENTS.that(
    3,
    "records before the fetch offset are left out, unless they are compressed",
    source="RecordsUtil.downConvert",
    until=UNTIL,
)
def from_inside(target: Target) -> None:
    for codec, first in ((Compression.NONE, 1), (Compression.GZIP, 0)):
        topic = _topic_with(target, build_batch(RECORDS, compression=codec))
        for version in _old_versions(target):
            found = _records(_read(target, topic, version, offset=1)[1])
            expect_equal(
                found, _expected(version)[first:], f"version {version}, {codec.name}: records"
            )


@REQUIREMENTS.that(
    4,
    "a converted response has the size of the batches that were read, with an incomplete message "
    "as padding",
    source="KIP-283",
    until=UNTIL,
)
def size(target: Target) -> None:
    sent = [batch(2), batch(2), batch(2)]
    topic = _topic_with(target, *sent)
    for version in _old_versions(target):
        row, messages = _read(target, topic, version)
        expect_equal(
            len(bytes(row.records or b"")),
            sum(len(each) for each in sent),
            f"version {version}: bytes",
        )
        expect_equal(
            [each.offset for each in messages], [0, 1, 2, 3, 4, 5], f"version {version}: offsets"
        )
    large = build_batch([Record(timestamp=1, key=b"%d" % at) for at in range(50)])
    topic = _topic_with(target, large)
    for version in _old_versions(target):
        row, messages = _read(target, topic, version)
        expect(
            len(bytes(row.records or b"")) > len(large),
            f"version {version}: small records take more bytes than in format 2",
        )
        expect_equal(len(messages), 50, f"version {version}: messages of the first batch")


@REQUIREMENTS.that(
    5,
    "a limit of bytes truncates the response, and before version 3 the first batch, too",
    source="KIP-74",
    until=UNTIL,
)
def limits(target: Target) -> None:
    one = len(batch(2))
    topic = _topic_with(target, batch(2), batch(2), batch(2))
    for version in _old_versions(target):
        for limit in (0, 1, 20, one - 1):
            row, messages = _read(target, topic, version, partition_max_bytes=limit)
            expected = [0, 1] if version >= ONE_BATCH_SINCE else []
            expect_equal(
                [each.offset for each in messages],
                expected,
                f"version {version}, {limit} bytes: offsets",
            )
            expect_equal(
                len(bytes(row.records or b"")),
                one if expected else 0,
                f"version {version}, {limit} bytes: bytes",
            )
        for limit, count in ((one, 2), (one + 9, 2), (2 * one + 18, 4)):
            row, messages = _read(target, topic, version, partition_max_bytes=limit)
            expect_equal(
                len(bytes(row.records or b"")), limit, f"version {version}, {limit} bytes: bytes"
            )
            expect_equal(
                [each.offset for each in messages],
                list(range(count)),
                f"version {version}, {limit} bytes: offsets",
            )


@REQUIREMENTS.that(
    6,
    "before version 3 every partition is returned up to its own limit",
    source="FetchRequest: max_bytes came with version 3",
    until=UNTIL,
)
def no_limit_of_the_answer(target: Target) -> None:
    topic = target.topic(partitions=3)
    one = len(batch(2))
    for version in _old_versions(target):
        for partition in range(3):
            with target.peer(topic.leader) as peer:
                produce(peer, topic.name, batch(2), partition=partition)
        asked = fetch_request(topic, version, partition_max_bytes=one)
        asked.max_bytes = 1
        asked.topics = [
            FetchTopic(
                topic=topic.name,
                partitions=[
                    FetchPartition(partition=at, partition_max_bytes=one) for at in range(3)
                ],
            )
        ]
        with target.peer(topic.leader) as peer:
            answer = peer.ask(asked, version, FetchResponse)
        sizes = [
            len(bytes(row.records or b""))
            for row in answer.responses[0].partitions
            if row.error_code == ErrorCode.NONE
        ]
        led = len(sizes)
        expect_equal(
            sizes,
            [one] * led if version < ONE_BATCH_SINCE else [one] + [0] * (led - 1),
            f"version {version}: bytes by partition",
        )


@REQUIREMENTS.that(
    7,
    "a zstd batch returns UNSUPPORTED_COMPRESSION_TYPE if it is the first one, and ends the "
    "response otherwise",
    source=LAZY,
    until=UNTIL,
)
def zstd(target: Target) -> None:
    _refused(
        target,
        _topic_with(target, batch(3, compression=Compression.ZSTD)),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        _old_versions(target),
    )
    for version in _old_versions(target):
        topic = _topic_with(
            target,
            build_batch(RECORDS),
            batch(3, compression=Compression.ZSTD),
            build_batch(RECORDS),
        )
        expect_equal(
            _records(_read(target, topic, version)[1]),
            _expected(version),
            f"version {version}, zstd in the middle: records",
        )


@REQUIREMENTS.that(
    8,
    "a topic with compression.type=zstd returns UNSUPPORTED_COMPRESSION_TYPE in every version "
    "before 10",
    source="KIP-110; KafkaApis.handleFetchRequest",
    until=UNTIL,
)
def zstd_topic(target: Target) -> None:
    topic = _topic_with(target, batch(3), configs={"compression.type": "zstd"})
    early = [version for version in target.versions(ApiKey.FETCH) if version < ZSTD_SINCE]
    _refused(target, topic, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, early)


@REQUIREMENTS.that(
    9,
    "a topic with message.downconversion.enable=false returns UNSUPPORTED_VERSION",
    source="KIP-283: message.downconversion.enable",
    until=UNTIL,
)
def forbidden(target: Target) -> None:
    topic = _topic_with(target, batch(3), configs={"message.downconversion.enable": "false"})
    _refused(target, topic, ErrorCode.UNSUPPORTED_VERSION, _old_versions(target))
    newest = target.newest(ApiKey.FETCH)
    row = fetch_one(target, topic, fetch_request(topic, newest), newest)
    expect(bool(row.records), f"version {newest}, which needs no conversion, gets nothing")


@REQUIREMENTS.that(
    10,
    "an offset out of range returns OFFSET_OUT_OF_RANGE, an unknown partition "
    "UNKNOWN_TOPIC_OR_PARTITION",
    source="KafkaApis.handleFetchRequest",
    until=UNTIL,
)
def errors(target: Target) -> None:
    topic = filled_topic(target, batches=2)
    _refused(target, topic, ErrorCode.OFFSET_OUT_OF_RANGE, _old_versions(target), offset=3)
    _refused(
        target, topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _old_versions(target), partition=5
    )


@REQUIREMENTS.that(
    11, "LogAppendTime is returned as the timestamp type in format 1", source="KIP-32", until=UNTIL
)
def append_times(target: Target) -> None:
    for codec in OLD_CODECS:
        topic = _topic_with(
            target,
            build_batch(RECORDS, compression=codec),
            configs={"message.timestamp.type": "LogAppendTime"},
        )
        for version in _old_versions(target):
            _, messages = _read(target, topic, version)
            expected = TimestampType.LOG_APPEND_TIME if _magic(version) else None
            expect_equal(
                {each.timestamp_type for each in messages},
                {expected},
                f"version {version}, {codec.name}: timestamp type",
            )
            times = {time for _, time, _, _ in _records(messages)}
            expect(
                len(times) == 1 and (times == {-1}) == (expected is None),
                f"version {version}, {codec.name}: timestamps {times}",
            )


@REQUIREMENTS.that(
    12,
    "a fetch with an old version waits at the end of the log and completes on an append",
    source="DelayedFetch",
    until=UNTIL,
)
def waits(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    end = 1
    for version in _old_versions(target):
        started = time.monotonic()
        row = fetch_one(
            target, topic, fetch_request(topic, version, end, max_wait_ms=SHORT_MS), version
        )
        took_ms = (time.monotonic() - started) * 1000
        expect_equal(
            (row.error_code, bytes(row.records or b"")),
            (0, b""),
            f"version {version}: error, records at the end",
        )
        expect(
            took_ms >= SHORT_MS * 0.9,
            f"version {version}: answered after {took_ms:.0f} ms, max_wait_ms is {SHORT_MS}",
        )
        asked = fetch_request(topic, version, end, max_wait_ms=LONG_MS * 5)
        with target.peer(topic.leader) as reader, target.peer(topic.leader) as writer:
            correlation_id = reader.send(asked, version)
            expect(
                reader.is_silent(0.2), f"version {version}: a fetch at the end is answered at once"
            )
            produce(writer, topic.name, build_batch(RECORDS))
            answer = reader.receive(asked, version, correlation_id, FetchResponse)
        found = [
            message
            for message in split_any_batches(
                bytes(answer.responses[0].partitions[0].records or b"")
            )
            if isinstance(message, OldMessage)
        ]
        expect_equal(
            _records(found),
            _expected(version, base_offset=end),
            f"version {version}: what it was woken with",
        )
        end += len(RECORDS)
