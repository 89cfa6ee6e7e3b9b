"""Conversion of records before the append: message sets of Produce 0 to 2, and batches in another
codec than the topic's.

The result is one batch of format 2 with its offsets, as it is appended. The order of the checks is
Kafka's.
Source: UnifiedLog.append, LogValidator, KIP-31, KIP-32, KIP-98; compared with Apache Kafka 3.5.2
and 3.9.1.
"""

from dataclasses import dataclass

from kraftsim.core.decision import Refusal
from kraftsim.core.partitions.batch_rules import (
    AppendRules,
    ExaminedBatch,
    refuse_single_records,
    refuse_size_in_log,
)
from protocol.batches import RecordBatch, TimestampType
from protocol.errors import ErrorCode
from protocol.malformed_batches import MalformedBatch
from protocol.message_sets import AnyBatch, open_batch, split_any_batches
from protocol.offset_assignment import LogFormat, assign_offsets


class UncheckedRecords:
    """The records of a partition in a Produce request before version 3: any format, any number of
    messages, possibly none.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data

    @property
    def is_transactional(self) -> bool:
        """Whether the first batch is transactional; these versions have no transactional id."""
        try:
            batch = open_batch(self.data)
        except MalformedBatch:
            return False  # validation reports the error later
        return isinstance(batch, RecordBatch) and batch.is_transactional


class ConvertedRecords(UncheckedRecords):
    """Records converted in advance, for an empty log: `outcome` is the result of `converted`."""

    __slots__ = ("outcome",)

    def __init__(
        self, records: UncheckedRecords, outcome: "RecordBatch | NothingToAppend | Refusal"
    ) -> None:
        super().__init__(records.data)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class NothingToAppend:
    """There is no complete message: Kafka responds without an error and without an offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """The next offset, and the wall clock: `topic_partition` is used in messages."""

    base_offset: int
    leader_epoch: int
    now_ms: int
    topic_partition: str


def converted(
    records: UncheckedRecords, rules: AppendRules, place: LogPlace
) -> RecordBatch | NothingToAppend | Refusal:
    """Return the batch converted from message sets of any format.

    An incomplete message at the end is dropped. Nothing is converted twice.

    Fails with the codes of `refuse_batch`, or UNKNOWN_SERVER_ERROR for records that cannot be
    converted.
    """
    if isinstance(records, ConvertedRecords):
        return records.outcome
    try:
        batches = list(split_any_batches(records.data))
        if not batches:
            return NothingToAppend()
        refusal = next(
            (
                refusal
                for batch in batches
                if (refusal := _refuse_envelope(batch, rules)) is not None
            ),
            None,
        )
        if refusal is not None:
            return refusal
        batch = _assigned(records.data, rules, place)
        refusal = (
            refuse_single_records(batch, rules, place.now_ms, place.topic_partition)
            if rules.validates_records
            else None
        )
    except MalformedBatch as malformed:
        return Refusal(malformed.error_code, malformed.reason)
    return refusal or refuse_size_in_log(batch, rules) or batch


def recompressed(batch: RecordBatch, rules: AppendRules, place: LogPlace) -> RecordBatch | Refusal:
    """Return a valid batch (see `refuse_batch`) in the topic's codec. Nothing is rebuilt twice.

    Fails with MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE if its size has increased, or
    UNKNOWN_SERVER_ERROR.
    """
    if isinstance(batch, ExaminedBatch) and batch.rebuilt is not None:
        return batch.rebuilt
    try:
        rebuilt = _assigned(batch.view(), rules, place)
    except MalformedBatch as malformed:
        return Refusal(malformed.error_code, malformed.reason)
    return refuse_size_in_log(rebuilt, rules) or rebuilt


def _refuse_envelope(batch: AnyBatch, rules: AppendRules) -> Refusal | None:
    if isinstance(batch, RecordBatch) and batch.base_offset != 0:
        return Refusal(
            ErrorCode.INVALID_RECORD,
            f"the base offset of a client's batch must be 0, not {batch.base_offset}",
        )
    if batch.size_bytes > rules.max_message_bytes:
        return Refusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{batch.size_bytes} bytes, the maximum is {rules.max_message_bytes}",
        )
    if not batch.crc_is_valid():
        return Refusal(ErrorCode.CORRUPT_MESSAGE, "the checksum of a message is wrong")
    return None


def _assigned(data: bytes | memoryview, rules: AppendRules, place: LogPlace) -> RecordBatch:
    timestamp_type = (
        TimestampType.LOG_APPEND_TIME if rules.keeps_append_time else TimestampType.CREATE_TIME
    )
    assigned = assign_offsets(
        data,
        base_offset=place.base_offset,
        leader_epoch=place.leader_epoch,
        now_ms=place.now_ms,
        log_format=LogFormat(compression=rules.compression, timestamp_type=timestamp_type),
    )
    batch = RecordBatch(assigned.data)
    assert batch.size_bytes == len(assigned.data) and batch.last_offset == assigned.last_offset, (
        "a log of format 2 appends one batch at a time"
    )
    return batch
