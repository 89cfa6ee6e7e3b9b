"""Produce (0): which batches are appended, and which errors a producer gets.

Source: KIP-98, KIP-192, KIP-467; KafkaApis.handleProduceRequest, ProduceRequest.validateRecords,
LogValidator, ReplicaManager.appendRecords.
"""

from kraftsim.conformance.batches import (
    ALL,
    LEADER,
    NONE,
    batch,
    produce,
    produce_request,
    produce_versions,
    wall_ms,
)
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import ProduceRequest, ProduceResponse
from protocol.records.batches import build_batch
from protocol.records.record import Compression, Record

REQUIREMENTS = Requirements("produce", 1, "Accepted and rejected batches")
VALIDATE = "ProduceRequest.validateRecords"
LOG_VALIDATOR = "LogValidator.validateMessagesAndAssignOffsets"
LOG_START_SINCE = 5
RECORD_ERRORS_SINCE = 8
ZSTD_SINCE = 7
MAGIC_POSITION = 16
BATCH_LIMIT = 1_048_588
"""The default of message.max.bytes."""


def _refused(
    target: Target, records: bytes, error: ErrorCode, what: str, *, log_start: int = -1
) -> None:
    """A batch is rejected in every version, and the log is unchanged."""
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        for version in produce_versions(target):
            row = produce(peer, topic.name, records, version)
            expect_error(row.error_code, error, f"version {version}, {what}")
            expect_equal(
                (row.base_offset, row.log_append_time_ms),
                (-1, -1),
                f"version {version}, {what}: offset and time in an error response",
            )
            if version >= LOG_START_SINCE:
                expect_equal(
                    row.log_start_offset, log_start, f"version {version}, {what}: log start offset"
                )
        expect_equal(
            produce(peer, topic.name, batch()).base_offset,
            0,
            f"{what}: the offset of the next good batch",
        )


@REQUIREMENTS.that(
    1,
    "a batch is appended and the response contains its base offset",
    source="KafkaApis.handleProduceRequest",
)
def appended(target: Target) -> None:
    topic = target.topic()
    end = 0
    with target.peer(topic.leader) as peer:
        for version in produce_versions(target):
            for records in (1, 3):
                row = produce(peer, topic.name, batch(records), version)
                expect_error(row.error_code, ErrorCode.NONE, f"version {version}")
                expect_equal(
                    (row.index, row.base_offset, row.log_append_time_ms),
                    (0, end, -1),
                    f"version {version}: partition, offset, time",
                )
                expect_equal(
                    row.log_start_offset,
                    0 if version >= LOG_START_SINCE else -1,
                    f"version {version}: log start offset",
                )
                end += records


@REQUIREMENTS.that(
    2,
    "a topic with LogAppendTime returns the broker's clock",
    source="KIP-32; message.timestamp.type=LogAppendTime",
)
def log_append_time(target: Target) -> None:
    topic = target.topic(configs={"message.timestamp.type": "LogAppendTime"})
    old = build_batch([Record(timestamp=1000, value=b"old")])
    with target.peer(topic.leader) as peer:
        before = wall_ms()
        row = produce(peer, topic.name, old)
    expect_error(row.error_code, ErrorCode.NONE, "LogAppendTime")
    expect(
        before - 60_000 <= row.log_append_time_ms <= wall_ms() + 60_000,
        f"appended at {row.log_append_time_ms}, it is {before}",
    )


@REQUIREMENTS.that(
    3, "each topic and partition has its own result", source="KafkaApis.handleProduceRequest"
)
def each_by_itself(target: Target) -> None:
    topic = target.topic()
    asked = produce_request(topic.name, batch())
    asked.topic_data[0].partition_data += (
        produce_request(topic.name, batch(), partition=17).topic_data[0].partition_data
    )
    asked.topic_data += produce_request(target.fresh_name("absent"), batch()).topic_data
    with target.peer(topic.leader) as peer:
        answer = peer.ask(asked, 9, ProduceResponse)
    found = {
        (row.name == topic.name, part.index): part.error_code
        for row in answer.responses
        for part in row.partition_responses
    }
    absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    expect_equal(
        found,
        {(True, 0): ErrorCode.NONE, (True, 17): absent, (False, 0): absent},
        "errors by (known topic, partition)",
    )


@REQUIREMENTS.that(
    4,
    "an unknown topic, an unknown partition and an invalid topic name are rejected with "
    "UNKNOWN_TOPIC_OR_PARTITION",
    source="KafkaApis.handleProduceRequest",
)
def unknown_partitions(target: Target) -> None:
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        for name, partition in (
            (target.fresh_name("absent"), 0),
            (topic.name, 1),
            (topic.name, -1),
            ("a b", 0),
        ):
            for version in produce_versions(target):
                row = produce(peer, name, batch(), version, partition=partition)
                expect_error(
                    row.error_code,
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"version {version}, partition {partition} of {name!r}",
                )
                expect_equal(
                    (row.base_offset, row.log_start_offset),
                    (-1, -1),
                    "offsets in an error response",
                )


@REQUIREMENTS.that(
    5,
    "acks other than -1, 0 and 1 are rejected with INVALID_REQUIRED_ACKS",
    source="ReplicaManager.isValidRequiredAcks",
)
def bad_acks(target: Target) -> None:
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        for acks in (2, -2, 3, 32767):
            for version in produce_versions(target):
                row = produce(peer, topic.name, batch(), version, acks=acks)
                expect_error(
                    row.error_code,
                    ErrorCode.INVALID_REQUIRED_ACKS,
                    f"version {version}, acks {acks}",
                )
        expect_equal(
            produce(peer, topic.name, batch(), acks=LEADER).base_offset,
            0,
            "the offset of the next good batch",
        )


@REQUIREMENTS.that(
    6,
    "acks=0 gets no response, and the batch is in the log",
    source="KafkaApis.sendNoOpResponseExemptThrottle",
)
def silence(target: Target) -> None:
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        peer.send(produce_request(topic.name, batch(3), acks=NONE), 9)
        expect(peer.is_silent(), "something is answered, or the connection closes")
        row = produce(peer, topic.name, batch(), acks=ALL)
    expect_equal(row.base_offset, 3, "the offset after the three records without a response")


@REQUIREMENTS.that(
    7,
    "acks=0 with a rejected batch closes the connection",
    source="KafkaApis.handleProduceRequest: the only way to signal an error",
)
def silence_is_broken(target: Target) -> None:
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        peer.send(produce_request(topic.name, batch(), partition=9, acks=NONE), 9)
        expect(
            peer.is_closed_by_node(), "the connection stays open after a refused batch with acks=0"
        )


@REQUIREMENTS.that(
    8,
    "a batch with a wrong checksum is rejected with CORRUPT_MESSAGE",
    source="LogValidator: DefaultRecordBatch.ensureValid",
)
def wrong_checksum(target: Target) -> None:
    for position in (-1, 17, 30):
        damaged = bytearray(batch(3))
        damaged[position] ^= 1
        _refused(target, bytes(damaged), ErrorCode.CORRUPT_MESSAGE, f"byte {position} changed")


@REQUIREMENTS.that(
    9,
    "no batch, two batches, and a truncated batch are rejected with INVALID_RECORD",
    source=VALIDATE,
)
def not_one_batch(target: Target) -> None:
    cases = {
        "no batch": b"",
        "two batches": batch() * 2,
        "a truncated batch": batch(3)[:-5],
        "half a header": batch()[:30],
        "five bytes": batch()[:5],
    }
    for what, records in cases.items():
        _refused(target, records, ErrorCode.INVALID_RECORD, what)


@REQUIREMENTS.that(
    10,
    "message formats 0 and 1 are rejected with INVALID_RECORD, unknown ones with CORRUPT_MESSAGE",
    source=VALIDATE,
)
def other_formats(target: Target) -> None:
    for magic, error in (
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
    ):
        changed = bytearray(batch())
        changed[MAGIC_POSITION] = magic
        _refused(target, bytes(changed), error, f"magic {magic}")


@REQUIREMENTS.that(
    11,
    "a base offset other than 0, a control batch, and a producer id without a sequence are "
    "rejected with INVALID_RECORD",
    source=LOG_VALIDATOR,
)
def what_producers_may_not_say(target: Target) -> None:
    one = [Record(timestamp=wall_ms(), value=b"x")]
    cases = {
        "base offset 5": build_batch(one, base_offset=5),
        "a control batch": build_batch(one, control=True),
        "a control batch of a producer": build_batch(
            one, control=True, producer_id=1, producer_epoch=0, base_sequence=0
        ),
        "no sequence": build_batch(one, producer_id=1, producer_epoch=0),
    }
    for what, records in cases.items():
        _refused(target, records, ErrorCode.INVALID_RECORD, what, log_start=0)


@REQUIREMENTS.that(
    12,
    "a batch larger than message.max.bytes is rejected with MESSAGE_TOO_LARGE",
    source="UnifiedLog.analyzeAndValidateRecords",
)
def too_large(target: Target) -> None:
    large = build_batch([Record(timestamp=wall_ms(), value=bytes(BATCH_LIMIT))])
    _refused(target, large, ErrorCode.MESSAGE_TOO_LARGE, "a batch above the limit")


@REQUIREMENTS.that(
    13,
    "every compression type is accepted; zstd before version 7 is rejected with "
    "UNSUPPORTED_COMPRESSION_TYPE",
    source="KIP-110",
)
def compressions(target: Target) -> None:
    topic = target.topic()
    end = 0
    with target.peer(topic.leader) as peer:
        for version in produce_versions(target):
            for compression in Compression:
                row = produce(peer, topic.name, batch(5, compression=compression), version)
                if compression is Compression.ZSTD and version < ZSTD_SINCE:
                    expect_error(
                        row.error_code,
                        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                        f"version {version}, zstd",
                    )
                    continue
                expect_error(
                    row.error_code, ErrorCode.NONE, f"version {version}, {compression.name}"
                )
                expect_equal(row.base_offset, end, f"version {version}, {compression.name}: offset")
                end += 5


@REQUIREMENTS.that(
    14,
    "a transactional batch without a transactional id is rejected with "
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    source="KafkaApis.handleProduceRequest",
)
def transactional_without_id(target: Target) -> None:
    records = build_batch(
        [Record(timestamp=wall_ms(), value=b"x")],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    _refused(
        target, records, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch"
    )


@REQUIREMENTS.that(
    15,
    "a compacted topic rejects records without a key with INVALID_RECORD, each one listed since "
    "version 8",
    source="KIP-467",
)
def keyless_on_compacted(target: Target) -> None:
    topic = target.topic(configs={"cleanup.policy": "compact"})
    with target.peer(topic.leader) as peer:
        for version in produce_versions(target):
            row = produce(peer, topic.name, batch(2), version)
            expect_error(row.error_code, ErrorCode.INVALID_RECORD, f"version {version}")
            named = [record.batch_index for record in row.record_errors]
            expect_equal(
                named,
                [0, 1] if version >= RECORD_ERRORS_SINCE else [],
                f"version {version}: records named",
            )


@REQUIREMENTS.that(
    16,
    "timestamps out of range are rejected with INVALID_TIMESTAMP, each record listed with its "
    "range since version 8",
    source="KIP-937; LogValidator",
    since="3.6",
)
def timestamps_out_of_range(target: Target) -> None:
    limits = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "60000"}
    topic = target.topic(configs=limits)
    now_ms = wall_ms()
    records = build_batch(
        [
            Record(timestamp=5, value=b"old"),
            Record(timestamp=now_ms, value=b"good"),
            Record(timestamp=now_ms + 999_999, value=b"new"),
        ]
    )
    with target.peer(topic.leader) as peer:
        for version in produce_versions(target):
            row = produce(peer, topic.name, records, version)
            expect_error(row.error_code, ErrorCode.INVALID_TIMESTAMP, f"version {version}")
            if version >= RECORD_ERRORS_SINCE:
                expect_equal(
                    [record.batch_index for record in row.record_errors],
                    [0, 2],
                    f"version {version}: records named",
                )
                text = row.record_errors[0].batch_index_error_message or ""
                begin = (
                    "Timestamp 5 of message with offset 0 is out of range. The timestamp should "
                    "be within ["
                )
                expect(
                    text.startswith(begin),
                    f"version {version}: {text!r} does not begin with {begin!r}",
                )
                expect_equal(
                    row.error_message,
                    "One or more records have been rejected due to invalid timestamp",
                    f"version {version}: message",
                )


@REQUIREMENTS.that(
    17,
    "null records get no response, and the connection stays open",
    source="verified against Apache Kafka 3.8.1",
    since="3.8",
)
def null_records(target: Target) -> None:
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        peer.send(produce_request(topic.name, None), 9)
        expect(peer.is_silent(1.0), "null records are answered, or close the connection")


@REQUIREMENTS.that(
    18,
    "a request without topics gets a response without topics",
    source="KafkaApis.handleProduceRequest",
)
def nothing_to_do(target: Target) -> None:
    with target.peer() as peer:
        for version in produce_versions(target):
            answer = peer.ask(
                ProduceRequest(transactional_id=None, acks=ALL, timeout_ms=1000),
                version,
                ProduceResponse,
            )
            expect_equal(answer.responses, [], f"version {version}: topics of the answer")


@REQUIREMENTS.that(
    19,
    "null records for an unknown topic or partition are rejected with UNKNOWN_TOPIC_OR_PARTITION",
    source="KafkaApis.handleProduceRequest",
)
def null_records_for_unknown_partition(target: Target) -> None:
    topic = target.topic()
    with target.peer(topic.leader) as peer:
        for name, partition in ((target.fresh_name("absent"), 0), (topic.name, 17)):
            for version in produce_versions(target):
                answer = peer.ask(
                    produce_request(name, None, partition=partition), version, ProduceResponse
                )
                code = answer.responses[0].partition_responses[0].error_code
                expect_error(
                    code,
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"version {version}, partition {partition} of {name}",
                )
