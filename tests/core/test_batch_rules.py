"""Which batches a leader accepts from a client.

Source: ProduceRequest.validateRecords, LogValidator.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftsim.core.decision import Refusal
from kraftsim.partitions.rules_append import (
    AppendRules,
    LogPlace,
    checked_batch,
    client_batch,
    refuse_acks,
)
from protocol.errors import ErrorCode
from protocol.records.batches import HEADER_SIZE_BYTES, MAGIC_POSITION, RecordBatch
from protocol.records.record import Compression
from tests.core.batches import doctored, make_batch

NOW_MS = 1_000_000
PLACE = LogPlace(base_offset=7, leader_epoch=1, now_ms=NOW_MS, topic_partition="t-0")
GOOD = make_batch(0, 2)
WHOLE = bytes(GOOD.view())
BODY = WHOLE[HEADER_SIZE_BYTES:]


def with_byte(position: int, value: int, data: bytes = WHOLE) -> bytes:
    return data[:position] + bytes([value]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (WHOLE[:30], ErrorCode.INVALID_RECORD),  # a truncated header
        (WHOLE[:-1], ErrorCode.INVALID_RECORD),  # truncated records
        (WHOLE + WHOLE, ErrorCode.INVALID_RECORD),
        (with_byte(MAGIC_POSITION, 0), ErrorCode.INVALID_RECORD),
        (with_byte(MAGIC_POSITION, 1), ErrorCode.INVALID_RECORD),
        (with_byte(MAGIC_POSITION, 3), ErrorCode.CORRUPT_MESSAGE),
        (bytes(100), ErrorCode.INVALID_RECORD),  # magic 0
        (WHOLE + with_byte(MAGIC_POSITION, 9), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_partition_data_must_hold_exactly_one_batch(
    records: bytes | None, error: ErrorCode
) -> None:
    """Neither none, nor two, nor another format."""
    assert client_batch(records, 9) == Refusal(error)


@pytest.mark.parametrize("rest", [b"", b"\0" * 11, WHOLE[:40]])
def test_incomplete_bytes_after_the_batch_are_dropped(rest: bytes) -> None:
    """As in Kafka: only the bytes that the batch itself claims are appended."""
    taken = client_batch(WHOLE + rest, 9)
    assert isinstance(taken, RecordBatch)
    assert bytes(taken.view()) == WHOLE


@pytest.mark.parametrize(("version", "is_taken"), [(3, False), (6, False), (7, True), (11, True)])
def test_zstd_needs_produce_7(version: int, is_taken: bool) -> None:
    """KIP-110: older consumers of older brokers could not read it."""
    taken = client_batch(make_batch(0, compression=Compression.ZSTD).view(), version)
    assert (
        isinstance(taken, RecordBatch)
        if is_taken
        else taken == Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    )


ROWS = {
    "a good one": (GOOD, AppendRules(), None),
    "a good one, compressed": (make_batch(0, 2, compression=Compression.LZ4), AppendRules(), None),
    "long records": (make_batch(0, 1, value=b"x" * 20_000), AppendRules(), None),
    "base offset 5": (make_batch(0, base_offset=5), AppendRules(), ErrorCode.INVALID_RECORD),
    "too large": (
        GOOD,
        AppendRules(max_message_bytes=GOOD.size_bytes - 1),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "just large enough": (GOOD, AppendRules(max_message_bytes=GOOD.size_bytes), None),
    "larger than a segment": (
        GOOD,
        AppendRules(segment_bytes=GOOD.size_bytes - 1),
        ErrorCode.RECORD_LIST_TOO_LARGE,
    ),
    "a flipped byte": (
        RecordBatch(with_byte(len(WHOLE) - 1, 0xFF)),
        AppendRules(),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "ends before it begins": (
        doctored(GOOD, last_offset_delta=-1, record_count=0),
        AppendRules(),
        ErrorCode.INVALID_RECORD,
    ),
    "no records": (doctored(GOOD, record_count=0), AppendRules(), ErrorCode.INVALID_RECORD),
    "a negative number of records": (
        doctored(GOOD, record_count=-3),
        AppendRules(),
        ErrorCode.INVALID_RECORD,
    ),
    "more records than offsets": (
        doctored(GOOD, record_count=4),
        AppendRules(),
        ErrorCode.INVALID_RECORD,
    ),
    "a control batch": (make_batch(0, control=True), AppendRules(), ErrorCode.INVALID_RECORD),
    "a producer id without a sequence": (
        doctored(GOOD, base_sequence=-1),
        AppendRules(),
        ErrorCode.INVALID_RECORD,
    ),
    "a codec that does not exist": (
        doctored(GOOD, attributes=7),
        AppendRules(),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "bytes that are not gzip": (
        doctored(GOOD, attributes=1),
        AppendRules(),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "fewer records than announced": (
        doctored(GOOD, last_offset_delta=3, record_count=4),
        AppendRules(),
        ErrorCode.INVALID_RECORD,
    ),
    "more records than announced": (
        doctored(GOOD, last_offset_delta=1, record_count=2),
        AppendRules(),
        ErrorCode.INVALID_RECORD,
    ),
    "a record of negative length": (
        doctored(GOOD, records=b"\x01" + BODY[1:]),
        AppendRules(),
        ErrorCode.INVALID_RECORD,
    ),
    "a record of no length": (
        doctored(GOOD, records=b"\x00" + BODY[1:]),
        AppendRules(),
        ErrorCode.INVALID_RECORD,
    ),
    "a record of two gigabytes": (
        doctored(GOOD, records=b"\xff\xff\xff\xff\x0f" + BODY),
        AppendRules(),
        ErrorCode.INVALID_RECORD,
    ),
    "a length that never ends": (
        doctored(GOOD, records=b"\xff" * 40),
        AppendRules(),
        ErrorCode.INVALID_RECORD,
    ),
    "a keyless record of a compacted topic": (
        make_batch(0, 1, key=None),
        AppendRules(is_compacted=True),
        ErrorCode.INVALID_RECORD,
    ),
    "a key for a compacted topic": (make_batch(0, 1), AppendRules(is_compacted=True), None),
    "too far in the past": (
        make_batch(0, timestamp=NOW_MS - 11),
        AppendRules(timestamp_before_max_ms=10),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "old enough": (
        make_batch(0, timestamp=NOW_MS - 10),
        AppendRules(timestamp_before_max_ms=10),
        None,
    ),
    "too far in the future": (
        make_batch(0, timestamp=NOW_MS + 11),
        AppendRules(timestamp_after_max_ms=10),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "any time where the append's counts": (
        make_batch(0, timestamp=1),
        AppendRules(timestamp_before_max_ms=10, timestamp_after_max_ms=10, keeps_append_time=True),
        None,
    ),
    "no timestamp": (make_batch(0, timestamp=-1), AppendRules(timestamp_before_max_ms=10), None),
    "wrong in two ways": (
        make_batch(0, base_offset=1, control=True),
        AppendRules(max_message_bytes=1),
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_batch_validation(row: str) -> None:
    """The first violated rule decides the error code."""
    batch, rules, error = ROWS[row]
    outcome = checked_batch(batch, rules, PLACE)
    assert outcome == (batch if error is None else Refusal(error)), outcome


@pytest.mark.parametrize(
    ("acks", "is_taken"), [(-1, True), (0, True), (1, True), (2, False), (-2, False)]
)
def test_acks_must_be_all_one_or_zero(acks: int, is_taken: bool) -> None:
    """Any other value returns INVALID_REQUIRED_ACKS."""
    assert (refuse_acks(acks) is None) == is_taken


@given(st.binary(max_size=150), st.integers(0, 150))
def test_random_bytes_are_rejected_without_an_exception(garbage: bytes, kept: int) -> None:
    """Whatever a client sends as records gets an error code, never an exception (the checksum is
    corrected for the deeper checks).
    """
    taken = client_batch(WHOLE[:kept] + garbage, 9)
    if isinstance(taken, RecordBatch):
        checked_batch(taken, AppendRules(is_compacted=True), PLACE)
    outcome = checked_batch(doctored(GOOD, records=garbage), AppendRules(is_compacted=True), PLACE)
    assert isinstance(outcome, Refusal) or garbage == BODY
