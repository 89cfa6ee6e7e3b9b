"""Validation of a client's record batches on the leader, with the error code of each failure.

The order of the checks is Kafka's, because a batch with two errors must get the first.
Source: ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator; messages
compared with Apache Kafka 3.9.1.
"""

from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Refusal, RefusedRecord
from kraftsim.core.partitions.record_walk import why_records_do_not_add_up
from protocol.batches import COMPRESSION_MASK, LENGTH_OVERHEAD_BYTES, RecordBatch, split_batches
from protocol.compression import Compression
from protocol.errors import ErrorCode
from protocol.malformed_batches import MalformedBatch

FIRST_PRODUCE_VERSION_WITH_ZSTD: Final = 7
ALL_REPLICAS: Final = -1
VALID_ACKS: Final = (ALL_REPLICAS, 0, 1)
NO_TIMESTAMP: Final = -1
NO_LIMIT_MS: Final = 2**63 - 1
RECORDS_SHOWN_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRules:
    """The topic configurations for appends: max.message.bytes, segment.bytes,
    message.timestamp.type, cleanup.policy, message.timestamp.*.max.ms.

    `compression` is the topic's codec (compression.type); None: each batch keeps its producer's.
    `min_in_sync_replicas` is the effective one: since 3.7 min.insync.replicas, but at most the
    replication factor.
    """

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    keeps_append_time: bool = False
    is_compacted: bool = False
    timestamp_before_max_ms: int = NO_LIMIT_MS
    timestamp_after_max_ms: int = NO_LIMIT_MS
    min_in_sync_replicas: int = 1
    compression: Compression | None = None

    def recompresses(self, batch: RecordBatch) -> bool:
        """Return whether the batch is appended in another codec than it was sent in."""
        return (
            self.compression is not None and batch.attributes & COMPRESSION_MASK != self.compression
        )

    @property
    def validates_records(self) -> bool:
        """Whether single records are validated, or only the batch."""
        bounds_timestamps = (
            min(self.timestamp_before_max_ms, self.timestamp_after_max_ms) < NO_LIMIT_MS
        )
        return self.is_compacted or (bounds_timestamps and not self.keeps_append_time)


class ExaminedBatch(RecordBatch):
    """A batch whose records are already validated: `refusal` is the result of `refuse_records`.

    `rebuilt` is the batch in the topic's codec, or the error; None if it was not rebuilt.
    """

    __slots__ = ("rebuilt", "refusal")

    def __init__(
        self,
        batch: RecordBatch,
        refusal: Refusal | None,
        rebuilt: RecordBatch | Refusal | None = None,
    ) -> None:
        super().__init__(batch.buffer, batch.position)
        self.refusal = refusal
        self.rebuilt = rebuilt


def client_batch(records: bytes | memoryview | None, produce_version: int) -> RecordBatch | Refusal:
    """Return the one batch of a partition in a Produce request.

    The bytes of an incomplete second batch are dropped, as Kafka does.

    Fails with INVALID_RECORD, CORRUPT_MESSAGE or UNSUPPORTED_COMPRESSION_TYPE.
    """
    if not records:
        return Refusal(
            ErrorCode.INVALID_RECORD,
            "a partition of a Produce request must have one batch, not none",
        )
    try:
        batch = RecordBatch(records)
        if (
            len(records) - batch.size_bytes >= LENGTH_OVERHEAD_BYTES
            and next(split_batches(records, batch.size_bytes), None) is not None
        ):
            return Refusal(
                ErrorCode.INVALID_RECORD,
                "a partition of a Produce request must have one batch, not several",
            )
    except MalformedBatch as malformed:
        return Refusal(malformed.error_code, malformed.reason)
    if (
        batch.attributes & COMPRESSION_MASK == Compression.ZSTD
        and produce_version < FIRST_PRODUCE_VERSION_WITH_ZSTD
    ):
        return Refusal(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce {FIRST_PRODUCE_VERSION_WITH_ZSTD}, this is {produce_version}",
        )
    return batch


def refuse_batch(
    batch: RecordBatch, rules: AppendRules, now_ms: int, topic_partition: str = ""
) -> Refusal | None:
    """Return why a client's batch is not appended, or None.

    `now_ms` is the wall clock, `topic_partition` is used in messages.

    Fails with INVALID_RECORD, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, INVALID_TIMESTAMP,
    RECORD_LIST_TOO_LARGE, or UNKNOWN_SERVER_ERROR for records that cannot be decompressed.
    """
    if batch.base_offset != 0:
        return Refusal(
            ErrorCode.INVALID_RECORD,
            f"the base offset of a client's batch must be 0, not {batch.base_offset}",
        )
    if batch.size_bytes > rules.max_message_bytes:
        return _too_large(batch, rules)
    if not batch.crc_is_valid():
        return Refusal(ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch is wrong")
    refusal = _refuse_header(batch) or (
        batch.refusal
        if isinstance(batch, ExaminedBatch)
        else refuse_records(batch, rules, now_ms, topic_partition)
    )
    if refusal is None and batch.size_bytes > rules.segment_bytes and not rules.recompresses(batch):
        return _too_large_for_a_segment(batch, rules)
    return refusal


def refuse_size_in_log(batch: RecordBatch, rules: AppendRules) -> Refusal | None:
    """Return why a rebuilt batch is too large: its size may have increased.

    Source: UnifiedLog.append.
    """
    if batch.size_bytes > rules.max_message_bytes:
        return _too_large(batch, rules)
    return (
        _too_large_for_a_segment(batch, rules) if batch.size_bytes > rules.segment_bytes else None
    )


def refuse_acks(acks: int) -> Refusal | None:
    """Return the error of an invalid acks value, or None."""
    return (
        None
        if acks in VALID_ACKS
        else Refusal(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
    )


def _too_large(batch: RecordBatch, rules: AppendRules) -> Refusal:
    return Refusal(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{batch.size_bytes} bytes, the maximum is {rules.max_message_bytes}",
    )


def _too_large_for_a_segment(batch: RecordBatch, rules: AppendRules) -> Refusal:
    return Refusal(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"{batch.size_bytes} bytes, larger than a segment of {rules.segment_bytes}",
    )


def _refuse_header(batch: RecordBatch) -> Refusal | None:
    if batch.last_offset_delta < 0:
        return Refusal(
            ErrorCode.INVALID_RECORD, f"the batch ends {-batch.last_offset_delta} before it begins"
        )
    if batch.record_count != batch.last_offset_delta + 1:
        return Refusal(
            ErrorCode.INVALID_RECORD,
            f"{batch.record_count} records for {batch.last_offset_delta + 1} offsets",
        )
    if batch.is_control:
        return Refusal(ErrorCode.INVALID_RECORD, "clients must not write control batches")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        return Refusal(
            ErrorCode.INVALID_RECORD, f"producer {batch.producer_id} sent no sequence number"
        )
    return None


def refuse_records(
    batch: RecordBatch, rules: AppendRules, now_ms: int, topic_partition: str
) -> Refusal | None:
    """Return the error of the records after the header, or None.

    It depends on its arguments only, so that a thread may compute it.

    Fails with INVALID_RECORD, INVALID_TIMESTAMP, or UNKNOWN_SERVER_ERROR for records that cannot be
    decompressed.
    """
    try:
        why = why_records_do_not_add_up(batch)
        if why is not None:
            return Refusal(ErrorCode.INVALID_RECORD, why)
        return (
            refuse_single_records(batch, rules, now_ms, topic_partition)
            if rules.validates_records
            else None
        )
    except MalformedBatch as malformed:
        return Refusal(malformed.error_code, malformed.reason)


def refuse_single_records(
    batch: RecordBatch, rules: AppendRules, now_ms: int, topic_partition: str
) -> Refusal | None:
    """Return an error with the indexes of all invalid records: those without a key first, as they
    make the batch invalid as a whole.
    """
    first_timestamp, last_timestamp = (
        now_ms - rules.timestamp_before_max_ms,
        now_ms + rules.timestamp_after_max_ms,
    )
    keyless: list[RefusedRecord] = []
    out_of_range: list[RefusedRecord] = []
    for index, record in enumerate(batch.records()):
        if rules.is_compacted and record.key is None:
            keyless.append(
                RefusedRecord(
                    index,
                    "Compacted topic cannot accept message without key in topic partition "
                    f"{topic_partition}",
                )
            )
        is_stamped = record.timestamp != NO_TIMESTAMP and not rules.keeps_append_time
        if is_stamped and not first_timestamp <= record.timestamp <= last_timestamp:
            why = (
                f"Timestamp {record.timestamp} of message with offset {record.offset} is out of "
                "range."
            )
            out_of_range.append(
                RefusedRecord(
                    index,
                    f"{why} The timestamp should be within [{first_timestamp}, {last_timestamp}]",
                )
            )
    if keyless:
        return Refusal(ErrorCode.INVALID_RECORD, _keyless_text(keyless), tuple(keyless))
    if out_of_range:
        return Refusal(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            tuple(out_of_range),
        )
    return None


def _keyless_text(records: list[RefusedRecord]) -> str:
    shown = ", ".join(
        f"RecordError(batchIndex={record.batch_index}, message='{record.why}')"
        for record in records[:RECORDS_SHOWN_MAX]
    )
    return (
        f"One or more records have been rejected due to {len(records)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
