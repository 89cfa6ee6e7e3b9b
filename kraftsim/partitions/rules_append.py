"""What a leader appends: the checks of a client's batch with the error code of each failure, the
assigned offsets, and transaction markers.

A batch is never decoded to check it: its header and its record lengths suffice, unless the topic's
rules concern single records.
Source: ProduceRequest.validateRecords, UnifiedLog.{append, analyzeAndValidateRecords},
LogValidator, MemoryRecords.withEndTransactionMarker; KIP-98; messages compared with Apache Kafka
3.9.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from kraftsim.core.decision import Refusal, RefusedRecord
from kraftsim.producer_state.rules_manager import marker_of
from protocol.errors import ErrorCode
from protocol.records.batches import (
    COMPRESSION_MASK,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    RecordBatch,
    crc_of,
    split_batches,
)
from protocol.records.compression import Compression
from protocol.records.control_records import build_transaction_marker
from protocol.records.lazy_blocks import decompress_in_pieces
from protocol.records.malformed_batches import MalformedBatch, MalformedRecord
from protocol.records.record_codec import read_varint

# --------------------------------------------------------------------------------------------------
# Transaction markers: the control batch that a transaction coordinator writes


@dataclass(frozen=True, slots=True, kw_only=True)
class EndMarker:
    """`coordinator_epoch`: the leader epoch of the coordinator's partition, which fences older
    coordinators.

    `transaction_version`: 2 if the epoch was bumped for this marker; it is not stored in the batch.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0

    def batch(self, now_ms: int) -> RecordBatch:
        """Return the control batch. `now_ms` is the wall clock."""
        built = build_transaction_marker(
            commits=self.is_commit,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            timestamp=now_ms,
        )
        return RecordBatch(built)


def end_marker_of(batch: RecordBatch) -> EndMarker | None:
    """Return the marker of a control batch; None if compaction removed it.

    Raises MalformedBatch.
    """
    marker = marker_of(batch)
    if marker is None:
        return None
    return EndMarker(
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        is_commit=not marker.is_abort,
    )


# --------------------------------------------------------------------------------------------------
# A batch with its offsets, before it is written


class AppendDecision:
    """A batch with its offsets.

    Write `chunks()`, then call `apply_append`; no other append may come in between.
    """

    __slots__ = (
        "_stamped",
        "append_timestamp",
        "batch",
        "first_offset",
        "last_offset",
        "leader_epoch",
        "marker",
    )

    def __init__(
        self,
        batch: RecordBatch,
        first_offset: int,
        leader_epoch: int,
        append_timestamp: int | None,
        marker: EndMarker | None = None,
    ) -> None:
        self.batch = batch
        self.marker = marker
        """The marker, if the batch ends a transaction; None for records."""
        self.first_offset = first_offset
        self.last_offset = first_offset + batch.last_offset_delta
        self.leader_epoch = leader_epoch
        self.append_timestamp = append_timestamp
        """The broker's wall clock with LogAppendTime, else None."""
        self._stamped = (
            None
            if append_timestamp is None
            else batch.with_log_append_time(first_offset, leader_epoch, append_timestamp)
        )

    @property
    def max_timestamp(self) -> int:
        """The maximum timestamp of the batch as it is appended."""
        return self.batch.max_timestamp if self.append_timestamp is None else self.append_timestamp

    def chunks(self) -> list[bytes | memoryview]:
        """Return the bytes to append."""
        if self._stamped is None:
            return self.batch.with_base_offset(self.first_offset, self.leader_epoch)
        return self._stamped

    @property
    def crc(self) -> int:
        """The checksum of the batch as it is appended: not the producer's if the broker sets the
        timestamp.
        """
        return self.batch.crc if self._stamped is None else crc_of(self._stamped[0])


# --------------------------------------------------------------------------------------------------
# Record lengths: each record must end where the next one begins, and their number must match the
# header
#
# The checksum covers transmission errors; this covers clients that build invalid batches. (Kafka
# decodes all records.)
# Source: DefaultRecord.readFrom, LogValidator.

VARINT_BYTES_MAX: Final = 10
COMPARED_SIZE_MAX: Final = 8192
"""Up to this size the length of a record has at most two bytes."""
WALKED_TOGETHER: Final = 16
"""After this many records of one size, check whether more follow with the same size."""
FIRST_LOOK_AHEAD: Final = 16


def why_records_do_not_add_up(batch: RecordBatch) -> str | None:
    """Return the error of the record lengths, or None.

    Raises UndecodableRecords for bytes that cannot be decompressed.
    """
    body = memoryview(batch.buffer)[
        batch.position + HEADER_SIZE_BYTES : batch.position + batch.size_bytes
    ]
    if batch.attributes & COMPRESSION_MASK == Compression.NONE:
        return _why_not_whole(body, batch)
    pieces = decompress_in_pieces(batch.compression, body)
    first, second = next(pieces, b""), next(pieces, None)
    return (
        _why_not_whole(first, batch)
        if second is None
        else _why_not_whole_in_pieces(chain((first, second), pieces), batch)
    )


def _why_not_whole(data: bytes | memoryview, batch: RecordBatch) -> str | None:
    try:
        end_position = _walk(data, batch.record_count)
    except (IndexError, MalformedRecord):
        return f"{batch.record_count} records in the header, the bytes end inside one"
    return (
        None
        if end_position == len(data)
        else f"the records end at byte {end_position} of {len(data)}"
    )


def _why_not_whole_in_pieces(pieces: Iterator[bytes], batch: RecordBatch) -> str | None:
    """Check the lengths piece by piece: nothing after the first error, or the last record, is
    decompressed.
    """
    left, skipped_bytes, rest = batch.record_count, 0, b""
    for piece in pieces:
        if skipped_bytes >= len(piece):
            skipped_bytes -= len(piece)
            continue
        data, position, skipped_bytes = rest + piece[skipped_bytes:], 0, 0
        while left and len(data) - position >= VARINT_BYTES_MAX:
            try:
                size_bytes, position = read_varint(data, position)
            except (IndexError, MalformedRecord):
                size_bytes = 0
            if size_bytes <= 0:
                return f"{batch.record_count} records in the header, the bytes end inside one"
            position += size_bytes
            left -= 1
        rest = data[position:]
        skipped_bytes = max(position - len(data), 0)
        if not left and rest:
            return (
                f"the records end before byte {position + len(rest)} of the bytes decompressed "
                "so far"
            )
    try:
        is_whole = not skipped_bytes and _walk(rest, left) == len(rest)
    except (IndexError, MalformedRecord):
        is_whole = False
    return (
        None
        if is_whole
        else f"{batch.record_count} records in the header, the bytes end inside one"
    )


def _walk(data: bytes | memoryview, record_count: int) -> int:
    """Return the position after the last record.

    Raises IndexError if the data is too short. Most lengths are varints of one or two bytes.
    """
    position = 0
    left = record_count
    while left > 0:
        first_begin = begin = position
        walked = min(left, WALKED_TOGETHER)
        for _ in range(walked):
            begin = position
            first = data[position]
            if first < 128:
                position += 1
            else:
                second = data[position + 1]
                if second < 128:
                    first = first & 0x7F | second << 7
                    position += 2
                else:
                    size_bytes, varint_bytes = read_varint(
                        bytes(data[position : position + VARINT_BYTES_MAX]), 0
                    )
                    first = size_bytes << 1 if size_bytes >= 0 else 1
                    position += varint_bytes
            if first & 1 or not first:
                raise MalformedRecord("a record with an invalid length")
            position += first >> 1
        left -= walked
        size_bytes = position - begin
        if size_bytes <= COMPARED_SIZE_MAX and position - first_begin == walked * size_bytes:
            alike = _alike(data, begin, size_bytes, left)
            position += alike * size_bytes
            left -= alike
    return position


def _alike(data: bytes | memoryview, begin: int, size_bytes: int, count_max: int) -> int:
    """Return how many records after the one at `begin` have the same length: their lengths are at
    equal distances, so one slice has them all.

    Many producers write records of one size; checking each costs more than the batch's checksum.
    The look-ahead doubles while it succeeds.
    """
    first, second = bytes(data[begin : begin + 1]), bytes(data[begin + 1 : begin + 2])
    alike, ahead = 0, FIRST_LOOK_AHEAD
    while alike < count_max:
        ahead = min(ahead, count_max - alike)
        start = begin + (alike + 1) * size_bytes
        end = start + ahead * size_bytes
        firsts, seconds = (
            bytes(data[start:end:size_bytes]),
            bytes(data[start + 1 : end : size_bytes]),
        )
        found = min(
            len(firsts) - len(firsts.lstrip(first)), len(seconds) - len(seconds.lstrip(second))
        )
        alike += found
        if found < ahead:
            break
        ahead *= 2
    return alike


# --------------------------------------------------------------------------------------------------
# Checks of a client's batch
#
# In Kafka's order, because a batch with two errors must get the first.

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
