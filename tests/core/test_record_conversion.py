"""Records that are converted before the append.

Source: UnifiedLog.append, LogValidator; verified with Apache Kafka 3.5.2 and 3.9.1.
"""

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.partitions.events import BatchAppended, ProduceRefused
from kraftsim.partitions.rules_append import (
    AppendDecision,
    AppendRules,
    NothingToAppend,
    UncheckedRecords,
)
from kraftsim.producer_state.rules_entries import Duplicate
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch, TimestampType, build_batch
from protocol.records.message_sets import build_message_set
from protocol.records.record import Compression, Record
from tests.core.batches import make_batch
from tests.core.test_partition_replica import NOW_MS, replica

RECORDS = (
    Record(timestamp=1000, key=b"a", value=b"1"),
    Record(timestamp=3000, key=b"b", value=None),
)
WRAPPED = build_message_set(RECORDS, magic=1, compression=Compression.GZIP)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("sent", "rules", "kept", "stamps"),
    [
        (Compression.NONE, AppendRules(), Compression.NONE, None),
        (Compression.GZIP, AppendRules(), Compression.GZIP, None),
        (Compression.GZIP, AppendRules(compression=Compression.ZSTD), Compression.ZSTD, None),
        (Compression.GZIP, AppendRules(compression=Compression.NONE), Compression.NONE, None),
        (
            Compression.NONE,
            AppendRules(compression=Compression.LZ4, keeps_append_time=True),
            Compression.LZ4,
            NOW_MS,
        ),
    ],
)
def test_message_sets_are_converted_to_one_batch_at_the_log_end(
    emitted: list[Event],
    magic: int,
    sent: Compression,
    rules: AppendRules,
    kept: Compression,
    stamps: int | None,
) -> None:
    """With the offsets and the leader epoch of the log, no producer id, and a valid checksum."""
    partition = replica(emitted, log_end_offset=40, rules=rules)
    decision = partition.decide_append_of_any_format(
        UncheckedRecords(build_message_set(RECORDS, magic=magic, compression=sent)), -1, NOW_MS
    )
    assert isinstance(decision, AppendDecision)
    partition.apply_append(decision)
    written = RecordBatch(b"".join(decision.chunks))
    assert written.crc_is_valid() and written.size_bytes == decision.batch.size_bytes
    assert (
        written.base_offset,
        written.last_offset,
        written.partition_leader_epoch,
        written.producer_id,
    ) == (40, 41, 3, -1)
    assert (written.compression, written.timestamp_type) == (
        kept,
        TimestampType.CREATE_TIME if stamps is None else TimestampType.LOG_APPEND_TIME,
    )
    times = [stamps] * 2 if stamps is not None else [1000, 3000] if magic else [-1, -1]
    assert [(each.offset, each.timestamp, each.key, each.value) for each in written.records()] == [
        (40, times[0], b"a", b"1"),
        (41, times[1], b"b", None),
    ]
    assert (decision.first_offset, decision.max_timestamp, decision.append_timestamp) == (
        40,
        max(times),
        stamps,
    )
    assert partition.log_end_offset == 42 and [type(event) for event in emitted] == [BatchAppended]


@pytest.mark.parametrize(
    ("data", "rules", "error"),
    [
        (WRAPPED[:-1] + b"x", AppendRules(), ErrorCode.CORRUPT_MESSAGE),
        (WRAPPED * 2, AppendRules(), ErrorCode.INVALID_RECORD),
        (build_batch(RECORDS, base_offset=1), AppendRules(), ErrorCode.INVALID_RECORD),
        (bytes(16) + b"\x03" + bytes(60), AppendRules(), ErrorCode.CORRUPT_MESSAGE),
        (
            build_message_set([Record(timestamp=-5)], magic=1),
            AppendRules(),
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        (
            build_message_set([Record(timestamp=1)], magic=1),
            AppendRules(is_compacted=True),
            ErrorCode.INVALID_RECORD,
        ),
        (WRAPPED, AppendRules(timestamp_before_max_ms=10), ErrorCode.INVALID_TIMESTAMP),
        (WRAPPED, AppendRules(max_message_bytes=len(WRAPPED) - 1), ErrorCode.MESSAGE_TOO_LARGE),
        (
            build_message_set(RECORDS, magic=0),
            AppendRules(max_message_bytes=70),
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
        (WRAPPED, AppendRules(segment_bytes=70), ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_invalid_message_sets_are_rejected(
    emitted: list[Event], data: bytes, rules: AppendRules, error: ErrorCode
) -> None:
    """Sizes are checked before and after the conversion; a rejection emits an event and changes
    nothing.
    """
    partition = replica(emitted, rules=rules)
    outcome = partition.decide_append_of_any_format(UncheckedRecords(data), -1, NOW_MS)
    assert isinstance(outcome, Refusal) and outcome.error is error
    assert [type(event) for event in emitted] == [ProduceRefused] and partition.log_end_offset == 0


def test_acks_and_leadership_are_checked_before_messages(emitted: list[Event]) -> None:
    garbage = UncheckedRecords(bytes(80))
    outcomes = [
        replica(emitted).decide_append_of_any_format(garbage, 2, NOW_MS),
        replica(emitted, leader_epoch=None).decide_append_of_any_format(garbage, -1, NOW_MS),
    ]
    errors = [outcome.error for outcome in outcomes if isinstance(outcome, Refusal)]
    assert errors == [ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("data", [b"", b"12345", WRAPPED[:-1]])
def test_without_a_complete_message_nothing_is_appended(emitted: list[Event], data: bytes) -> None:
    assert (
        replica(emitted).decide_append_of_any_format(UncheckedRecords(data), -1, NOW_MS)
        == NothingToAppend()
        and not emitted
    )


def test_batch_is_recompressed_to_the_topics_codec_and_deduplicated(emitted: list[Event]) -> None:
    """Sizes are those in the log: what arrives too large for a segment may fit."""
    rules = AppendRules(compression=Compression.GZIP, segment_bytes=300)
    partition = replica(emitted, rules=rules)
    batch = make_batch(0, 4, value=bytes(100))
    assert batch.size_bytes > rules.segment_bytes
    decision = partition.decide_append(batch, -1, NOW_MS)
    assert isinstance(decision, AppendDecision)
    partition.apply_append(decision)
    written = RecordBatch(b"".join(decision.chunks))
    assert (
        written.compression,
        written.crc_is_valid(),
        written.producer_id,
        written.last_sequence,
    ) == (Compression.GZIP, True, 7, 4)
    assert isinstance(partition.decide_append(batch, -1, NOW_MS), Duplicate)


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        (
            AppendRules(compression=Compression.NONE, max_message_bytes=300),
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
        (
            AppendRules(compression=Compression.NONE, segment_bytes=300),
            ErrorCode.RECORD_LIST_TOO_LARGE,
        ),
    ],
)
def test_batch_that_grows_too_large_is_rejected(
    emitted: list[Event], rules: AppendRules, error: ErrorCode
) -> None:
    batch = make_batch(0, 4, value=bytes(100), compression=Compression.GZIP)
    assert batch.size_bytes < 300
    outcome = replica(emitted, rules=rules).decide_append(batch, -1, NOW_MS)
    assert isinstance(outcome, Refusal) and outcome.error is error


def test_batch_in_the_topics_codec_is_unchanged(emitted: list[Event]) -> None:
    batch = make_batch(0, 4, compression=Compression.ZSTD)
    decision = replica(emitted, rules=AppendRules(compression=Compression.ZSTD)).decide_append(
        batch, -1, NOW_MS
    )
    assert isinstance(decision, AppendDecision) and decision.batch is batch


def test_only_v2_batches_can_be_transactional() -> None:
    marked = build_batch(
        RECORDS, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    )
    assert [
        UncheckedRecords(data).is_transactional
        for data in (marked, build_batch(RECORDS), WRAPPED, b"")
    ] == [True, False, False, False]
