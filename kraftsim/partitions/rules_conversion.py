"""Records that are rebuilt before the append: message sets of Produce 0 to 2, and batches in
another codec than the topic's; and how long any scan of records may take.

The result is one batch of format 2 with its offsets, as it is appended. The order of the checks is
Kafka's.
Source: UnifiedLog.append, LogValidator, KIP-31, KIP-32, KIP-98; compared with Apache Kafka 3.5.2
and 3.9.1.
"""

from dataclasses import dataclass
from typing import Final

from kraftsim.core.decision import Refusal
from kraftsim.partitions.rules_append import (
    AppendRules,
    ExaminedBatch,
    refuse_single_records,
    refuse_size_in_log,
)
from protocol.errors import ErrorCode
from protocol.records.batches import (
    COMPRESSION_MASK,
    HEADER_SIZE_BYTES,
    MAGIC,
    MAGIC_POSITION,
    RecordBatch,
    TimestampType,
)
from protocol.records.compression import Bytes, Compression
from protocol.records.lazy_blocks import estimated_plain_bytes
from protocol.records.malformed_batches import MalformedBatch
from protocol.records.message_sets import AnyBatch, open_batch, split_any_batches
from protocol.records.offset_assignment import LogFormat, assign_offsets

# --------------------------------------------------------------------------------------------------
# Conversion


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


# --------------------------------------------------------------------------------------------------
# Estimates of the work to scan records, before anything is decompressed
#
# A kilobyte may decompress to a megabyte, and a megabyte may have 150,000 records: scanning them
# takes longer than other clients should wait. Larger scans therefore run in a thread, on every
# path: Produce, searches by timestamp, down-conversion for old consumers, compaction. A producer
# may write anything into a header, so the estimates are upper bounds where that is affordable.
# Apache Kafka scans in the threads of KafkaRequestHandlerPool and LogCleaner.

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, both deltas, two sizes and the header count, at least a byte each."""
LOOKED_THROUGH_BYTES_MAX: Final = 128 * 1024
"""Up to this size records are scanned on the event loop: at most 18,700 records, which take 20 to
60 ms.
"""
BELIEVED_BYTES_MAX: Final = 8 * 1024
"""The total of gzip bytes whose declared sizes are trusted: if wrong, they hold 8 MB, which takes
20 ms to decompress.
"""
BELIEVED_COST: Final = LOOKED_THROUGH_BYTES_MAX // BELIEVED_BYTES_MAX
"""A gzip byte counts as at least this many: it bounds the error of declared sizes.

Of several members only the last one's size is visible.
"""
_ATTRIBUTES_POSITION: Final = 22
_RECORD_COUNT_POSITION: Final = 57


def produced_work(records: Bytes | None) -> tuple[int, int]:
    """Return the upper bound of a format-2 batch's decompressed size, and of the bytes that a walk
    over its records reads.

    A walk reads each record's length once, whatever its size, after decompressing the batch. Both
    are 0 for other formats.
    """
    if records is None or len(records) < HEADER_SIZE_BYTES or records[MAGIC_POSITION] != MAGIC:
        return 0, 0
    codec = records[_ATTRIBUTES_POSITION] & COMPRESSION_MASK
    count_bytes = RECORD_BYTES_MIN * max(
        int.from_bytes(records[_RECORD_COUNT_POSITION:HEADER_SIZE_BYTES], signed=True), 0
    )
    if not codec:
        return len(records), min(count_bytes, len(records))
    if codec > Compression.ZSTD:
        return 0, 0
    plain_bytes = max(
        estimated_plain_bytes(Compression(codec), memoryview(records)[HEADER_SIZE_BYTES:]),
        count_bytes,
    )
    return plain_bytes, plain_bytes


def believed_bytes(records: Bytes | None) -> int:
    """Return the size of a format-2 batch whose estimate relies on its declared size, which may be
    wrong: a short gzip one.
    """
    if (
        records is None
        or len(records) < HEADER_SIZE_BYTES
        or records[_ATTRIBUTES_POSITION] & COMPRESSION_MASK != Compression.GZIP
    ):
        return 0
    return len(records)


def takes_long(data: Bytes | None, bytes_max: int = LOOKED_THROUGH_BYTES_MAX) -> bool:
    """Return whether scanning the records of these batches and messages exceeds the limit for the
    event loop.
    """
    if not data:
        return False
    if len(data) > bytes_max:
        return True
    left_bytes = bytes_max
    try:
        for batch in split_any_batches(data):
            left_bytes -= batch_work(batch)
            if left_bytes < 0:
                return True
    except MalformedBatch:
        pass  # the rest is not scanned
    return False


def batch_work(batch: AnyBatch) -> int:
    """Return the number of bytes to scan for all records of a batch or message, as far as known in
    advance.
    """
    size_bytes: int = batch.size_bytes
    believed_cost = (
        size_bytes * BELIEVED_COST if batch.attributes & COMPRESSION_MASK == Compression.GZIP else 0
    )
    return max(_announced_work(batch, size_bytes), believed_cost)


def _announced_work(batch: AnyBatch, size_bytes: int) -> int:
    if isinstance(batch, RecordBatch):
        return produced_work(batch.view())[0]
    if not batch.attributes & COMPRESSION_MASK:
        return size_bytes
    try:
        value = batch.value
        return size_bytes + (
            0 if value is None else estimated_plain_bytes(batch.compression, memoryview(value))
        )
    except MalformedBatch:
        return size_bytes
