"""What a leader appends: the checks of a client's batch with the error code of each failure, the
conversion of what another format or codec has, and the assigned offsets.

A batch is never decoded to check it: its header and its record lengths suffice, unless the topic's
rules concern single records.
Source: ProduceRequest.validateRecords, UnifiedLog.{append, analyzeAndValidateRecords},
LogValidator; KIP-98; messages compared with Apache Kafka 3.9.1.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftsim.core.decision import Refusal, RefusedRecord
from kraftsim.producer_state.rules_manager import EndMarker
from protocol.errors import ErrorCode
from protocol.records.batches import (
    COMPRESSION_MASK,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RecordBatch,
    TimestampType,
    build_batch,
    crc_of,
    split_batches,
)
from protocol.records.down_conversion import require_convertible
from protocol.records.message_sets import (
    AnyBatch,
    OldMessage,
    build_message_set,
    open_batch,
    split_any_batches,
)
from protocol.records.record import (
    NO_TIMESTAMP,
    Bytes,
    Compression,
    MalformedBatch,
    Record,
    UnconvertibleBatch,
)

# --------------------------------------------------------------------------------------------------
# Conversion to the format of the log: offsets and timestamps of a producer's records
#
# Records stay the bytes that the producer sent wherever offsets and timestamps can be set in place;
# otherwise all of them are rebuilt. The limits of a topic for sizes, keys and timestamps are not
# checked here.
# Source: LogValidator, UnifiedLog.analyzeAndValidateRecords; KIP-31, KIP-32, KIP-98; verified
# against Apache Kafka 3.9.1.


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """The format of a log: message.format.version, compression.type (None: producer),
    message.timestamp.type.
    """

    magic: int = MAGIC
    compression: Compression | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedRecords:
    """The bytes to append, and the properties that the leader needs of them."""

    data: bytes
    last_offset: int
    max_timestamp: int
    was_rebuilt: bool


def assign_offsets(
    data: Bytes, *, base_offset: int, leader_epoch: int, now_ms: int, log_format: LogFormat
) -> AssignedRecords:
    """Return a producer's records with their offsets, in the format of the log; `now_ms` is their
    timestamp with LogAppendTime.

    Raises MalformedBatch or a subclass, with the error code for the producer. An incomplete batch
    at the end is dropped.
    """
    batches = list(split_any_batches(data))
    source = _require_whole(batches)
    target = source if log_format.compression is None else log_format.compression
    first = batches[0]
    is_single = len(batches) == 1
    if (first.magic >= MAGIC or source is not Compression.NONE) and not is_single:
        raise MalformedBatch("more than one batch", batches[1].position)
    assignment = _Assignment(batches, base_offset, leader_epoch, now_ms, log_format)
    if source is Compression.NONE and target is Compression.NONE:
        if all(batch.magic == log_format.magic for batch in batches):
            return assignment.in_place_plain()
        if isinstance(first, RecordBatch) and first.is_transactional and log_format.magic < MAGIC:
            raise UnconvertibleBatch(
                "Kafka fails on a transactional batch here before it validates it, and has no "
                "better error",
                first.position,
            )
        return assignment.rebuilt(assignment.validated(), target)
    records = assignment.validated()
    old_offsets_fit = (
        log_format.magic == 0
        or first.magic == 0
        or all(record.offset == index for index, record in enumerate(records))
    )
    if (
        source is target
        and first.magic == log_format.magic
        and log_format.magic != 0
        and old_offsets_fit
    ):
        return assignment.in_place_compressed(records)
    return assignment.rebuilt(records, target)


def rebuild_batch(
    batch: RecordBatch, *, base_offset: int, leader_epoch: int, now_ms: int, log_format: LogFormat
) -> RecordBatch:
    """Return a valid batch with all of its records rebuilt in the codec of the log, which is not
    the producer's; otherwise like `assign_offsets`.
    """
    assert log_format.compression is not None, "a log with the producer's codec keeps the batch"
    assignment = _Assignment([batch], base_offset, leader_epoch, now_ms, log_format)
    return RecordBatch(assignment.rebuilt(assignment.validated(), log_format.compression).data)


def _require_whole(batches: list[AnyBatch]) -> Compression:
    """Return the codec of the last compressed batch."""
    if not batches:
        raise MalformedBatch("no batch at all")
    codec = Compression.NONE
    for batch in batches:
        if isinstance(batch, RecordBatch) and batch.base_offset != 0:
            raise MalformedBatch(
                f"the base offset of a producer's batch is 0, not {batch.base_offset}",
                batch.position,
            )
        if not batch.crc_is_valid():
            raise MalformedBatch("the checksum is wrong", batch.position, ErrorCode.CORRUPT_MESSAGE)
        codec = batch.compression if batch.attributes & COMPRESSION_MASK else codec
    return codec


@dataclass(frozen=True, slots=True)
class _Assignment:
    batches: list[AnyBatch]
    base_offset: int
    leader_epoch: int
    now_ms: int
    log_format: LogFormat

    @property
    def stamps(self) -> bool:
        """Whether the log has LogAppendTime."""
        return self.log_format.timestamp_type is TimestampType.LOG_APPEND_TIME

    def validated(self) -> list[Record]:
        """Return all records."""
        return [record for batch in self.batches for record in self._validated_of(batch)]

    def in_place_plain(self) -> AssignedRecords:
        """Set offsets and timestamps in uncompressed batches of the log's own format."""
        chunks: list[bytes | memoryview] = []
        next_offset = self.base_offset
        max_timestamp = NO_TIMESTAMP
        for batch in self.batches:
            timestamps = [record.timestamp for record in self._validated_of(batch)]
            next_offset += len(timestamps)
            batch_max = self._newest(timestamps, batch.magic)
            max_timestamp = max(max_timestamp, batch_max)
            chunks += self._placed(batch, next_offset - 1, batch_max)
        return AssignedRecords(
            data=b"".join(chunks),
            last_offset=next_offset - 1,
            max_timestamp=max_timestamp,
            was_rebuilt=False,
        )

    def in_place_compressed(self, records: list[Record]) -> AssignedRecords:
        """Set the last offset and the max timestamp of the only batch, whose records stay
        compressed.
        """
        last_offset = self.base_offset + len(records) - 1
        max_timestamp = self._newest(
            [record.timestamp for record in records], self.log_format.magic
        )
        data = b"".join(self._placed(self.batches[0], last_offset, max_timestamp))
        return AssignedRecords(
            data=data, last_offset=last_offset, max_timestamp=max_timestamp, was_rebuilt=False
        )

    def rebuilt(self, records: list[Record], compression: Compression) -> AssignedRecords:
        """Rebuild all records, in one batch, or in a message set."""
        numbered = [
            record._replace(offset=self.base_offset + index) for index, record in enumerate(records)
        ]
        magic, first = self.log_format.magic, self.batches[0]
        require_convertible(numbered, first.position)
        append_timestamp = self.now_ms if self.stamps else None
        if magic >= MAGIC:
            data = self._rebuilt_batch(numbered, compression, append_timestamp)
        elif compression is Compression.ZSTD or any(record.headers for record in numbered):
            raise UnconvertibleBatch(f"format {magic} has neither headers nor zstd", first.position)
        else:
            data = build_message_set(
                numbered,
                magic=magic,
                base_offset=self.base_offset,
                compression=compression,
                append_timestamp=append_timestamp,
            )
        max_timestamp = (
            self.now_ms
            if self.stamps
            else self._newest([record.timestamp for record in records], magic)
        )
        return AssignedRecords(
            data=data,
            last_offset=self.base_offset + len(records) - 1,
            max_timestamp=max_timestamp,
            was_rebuilt=True,
        )

    def _newest(self, timestamps: list[int], magic: int) -> int:
        if magic == 0:
            return NO_TIMESTAMP
        return self.now_ms if self.stamps else max(*timestamps, NO_TIMESTAMP)

    def _rebuilt_batch(
        self, records: list[Record], compression: Compression, append_timestamp: int | None
    ) -> bytes:
        first = self.batches[0]
        producer = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
        if isinstance(first, RecordBatch):
            producer = first.producer_id, first.producer_epoch, first.base_sequence
        return build_batch(
            records,
            base_offset=self.base_offset,
            leader_epoch=self.leader_epoch,
            compression=compression,
            transactional=isinstance(first, RecordBatch) and first.is_transactional,
            append_timestamp=append_timestamp,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
        )

    def _placed(
        self, batch: AnyBatch, last_offset: int, max_timestamp: int
    ) -> list[bytes | memoryview]:
        timestamp_type = self.log_format.timestamp_type
        is_unchanged = (
            batch.timestamp_type is timestamp_type and batch.max_timestamp == max_timestamp
        )
        if isinstance(batch, RecordBatch):
            base_offset = last_offset - batch.last_offset_delta
            if is_unchanged:
                return batch.with_base_offset(base_offset, self.leader_epoch)
            return batch.with_max_timestamp(
                base_offset, self.leader_epoch, timestamp_type, max_timestamp
            )
        if batch.magic == 0 or is_unchanged:
            return batch.with_offset(last_offset)
        return batch.with_timestamp(last_offset, timestamp_type, max_timestamp)

    def _validated_of(self, batch: AnyBatch) -> Iterator[Record]:
        """Yield the records of a batch.

        Errors of single records are raised at the end: a wrong timestamp type first.
        """
        self._validate_batch(batch)
        blamed: list[tuple[ErrorCode, int]] = []
        magics = _inner_magics(batch)
        for index, record in enumerate(batch.records()):
            if next(magics, batch.magic) != batch.magic:
                blamed.append((ErrorCode.INVALID_RECORD, index))
            elif self._has_wrong_clock(batch, record):
                blamed.append((ErrorCode.INVALID_TIMESTAMP, index))
            yield record
        if blamed:
            code = (
                ErrorCode.INVALID_TIMESTAMP
                if any(code is ErrorCode.INVALID_TIMESTAMP for code, _ in blamed)
                else ErrorCode.INVALID_RECORD
            )
            raise MalformedBatch(
                f"records {[index for _, index in blamed]} do not fit to their batch",
                batch.position,
                code,
            )

    def _has_wrong_clock(self, batch: AnyBatch, record: Record) -> bool:
        """Producers must not send LogAppendTime.

        (Kafka misses it if the log has CreateTime, and the record has a timestamp.)
        """
        is_looked_at = self.stamps or record.timestamp == NO_TIMESTAMP
        return is_looked_at and batch.timestamp_type is TimestampType.LOG_APPEND_TIME

    def _validate_batch(self, batch: AnyBatch) -> None:
        if batch.magic != self.batches[0].magic:
            raise MalformedBatch(
                f"format {batch.magic} behind {self.batches[0].magic}", batch.position
            )
        if not isinstance(batch, RecordBatch):
            return
        batch.require_producer_header()
        if self.log_format.magic < MAGIC and (batch.is_transactional or batch.has_producer_id):
            reason = f"format {self.log_format.magic} has no producer ids"
            raise UnconvertibleBatch(
                reason, batch.position, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
            )


def _inner_magics(batch: AnyBatch) -> Iterator[int]:
    """Yield the format of each message in a wrapper, and verify its checksum, which only these
    have.
    """
    if not isinstance(batch, OldMessage) or batch.compression is Compression.NONE:
        return
    for message in batch.inner_messages():
        if message.magic == batch.magic and not message.crc_is_valid():
            raise MalformedBatch(
                "the checksum of a wrapped message is wrong",
                batch.position,
                ErrorCode.CORRUPT_MESSAGE,
            )
        yield message.magic


# --------------------------------------------------------------------------------------------------
# A batch with its offsets, before it is written


class AppendDecision:
    """A batch with its offsets.

    Write `chunks`, then call `apply_append`; no other append may come in between.
    """

    __slots__ = (
        "append_timestamp",
        "batch",
        "chunks",
        "crc",
        "first_offset",
        "last_offset",
        "leader_epoch",
        "marker",
        "max_timestamp",
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
        if append_timestamp is None:
            self.chunks = batch.with_base_offset(first_offset, leader_epoch)
            """The bytes to append. Checksum and maximum timestamp are theirs: not the producer's if
            the broker sets the timestamp.
            """
            self.crc = batch.crc
            self.max_timestamp = batch.max_timestamp
        else:
            self.chunks = batch.with_log_append_time(first_offset, leader_epoch, append_timestamp)
            self.crc = crc_of(self.chunks[0])
            self.max_timestamp = append_timestamp


# --------------------------------------------------------------------------------------------------
# Checks of a client's batch
#
# In Kafka's order, because a batch with two errors must get the first.

FIRST_PRODUCE_VERSION_WITH_ZSTD: Final = 7
ALL_REPLICAS: Final = -1
VALID_ACKS: Final = (ALL_REPLICAS, 0, 1)
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

    @property
    def log_format(self) -> LogFormat:
        """The format of the log."""
        return LogFormat(
            compression=self.compression,
            timestamp_type=TimestampType.LOG_APPEND_TIME
            if self.keeps_append_time
            else TimestampType.CREATE_TIME,
        )

    @property
    def validates_records(self) -> bool:
        """Whether single records are validated, or only the batch."""
        return self.is_compacted or (
            not self.keeps_append_time
            and (
                self.timestamp_before_max_ms < NO_LIMIT_MS
                or self.timestamp_after_max_ms < NO_LIMIT_MS
            )
        )


class LogPlace(NamedTuple):
    """The next offset, and the wall clock: `topic_partition` is used in messages."""

    base_offset: int
    leader_epoch: int
    now_ms: int
    topic_partition: str


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


def refuse_size_in_log(batch: RecordBatch, rules: AppendRules) -> Refusal | None:
    """Return why a batch is too large as it is appended: if it was rebuilt, its size may have
    increased.

    Source: UnifiedLog.append.
    """
    if batch.size_bytes > rules.max_message_bytes:
        return _too_large(batch, rules)
    if batch.size_bytes > rules.segment_bytes:
        return Refusal(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{batch.size_bytes} bytes, larger than a segment of {rules.segment_bytes}",
        )
    return None


def refuse_acks(acks: int) -> Refusal | None:
    """Return the error of an invalid acks value, or None."""
    return (
        None
        if acks in VALID_ACKS
        else Refusal(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
    )


def _refuse_envelope(batch: AnyBatch, rules: AppendRules) -> Refusal | None:
    if isinstance(batch, RecordBatch) and batch.base_offset != 0:
        return Refusal(
            ErrorCode.INVALID_RECORD,
            f"the base offset of a client's batch must be 0, not {batch.base_offset}",
        )
    return _too_large(batch, rules) if batch.size_bytes > rules.max_message_bytes else None


def _too_large(batch: AnyBatch, rules: AppendRules) -> Refusal:
    return Refusal(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{batch.size_bytes} bytes, the maximum is {rules.max_message_bytes}",
    )


def refuse_single_records(
    records: Iterable[Record], rules: AppendRules, place: LogPlace
) -> Refusal | None:
    """Return an error with the indexes of all invalid records: those without a key first, as they
    make the batch invalid as a whole.
    """
    first_timestamp, last_timestamp = (
        place.now_ms - rules.timestamp_before_max_ms,
        place.now_ms + rules.timestamp_after_max_ms,
    )
    keyless: list[RefusedRecord] = []
    out_of_range: list[RefusedRecord] = []
    for index, record in enumerate(records):
        if rules.is_compacted and record.key is None:
            keyless.append(
                RefusedRecord(
                    index,
                    "Compacted topic cannot accept message without key in topic partition "
                    f"{place.topic_partition}",
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


# --------------------------------------------------------------------------------------------------
# From what a client sent to what is appended: checked, converted, and with its offsets
#
# The result of a conversion is one batch of format 2 with its offsets. Nothing is converted twice:
# where it takes long, a thread has done it.
# Source: UnifiedLog.append, LogValidator, KIP-31, KIP-32; compared with Apache Kafka 3.5.2 and
# 3.9.1.


class ExaminedBatch(RecordBatch):
    """A batch that was checked and converted in advance: `outcome` is the result of
    `checked_batch`.
    """

    __slots__ = ("outcome",)

    def __init__(self, batch: RecordBatch, outcome: RecordBatch | Refusal) -> None:
        super().__init__(batch.buffer, batch.position)
        self.outcome = outcome


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


@dataclass(frozen=True, slots=True)
class NothingToAppend:
    """There is no complete message: Kafka responds without an error and without an offset."""


class ConvertedRecords(UncheckedRecords):
    """Records converted in advance: `outcome` is the result of `converted_records`."""

    __slots__ = ("outcome",)

    def __init__(
        self, records: UncheckedRecords, outcome: RecordBatch | NothingToAppend | Refusal
    ) -> None:
        super().__init__(records.data)
        self.outcome = outcome


def placed(
    batch: RecordBatch, rules: AppendRules, place: LogPlace, marker: EndMarker | None = None
) -> AppendDecision:
    """Return the batch with its offsets."""
    return AppendDecision(
        batch,
        place.base_offset,
        place.leader_epoch,
        place.now_ms if rules.keeps_append_time else None,
        marker,
    )


def decide_batch(
    batch: RecordBatch, rules: AppendRules, place: LogPlace
) -> AppendDecision | Refusal:
    """Check a client's batch, convert it if its topic has another codec, and assign its offsets.

    Fails as `checked_batch` does.
    """
    outcome = (
        batch.outcome if isinstance(batch, ExaminedBatch) else checked_batch(batch, rules, place)
    )
    return outcome if isinstance(outcome, Refusal) else placed(outcome, rules, place)


def checked_batch(batch: RecordBatch, rules: AppendRules, place: LogPlace) -> RecordBatch | Refusal:
    """Return a client's batch in the topic's codec.

    It depends on its arguments only, so that a thread may compute it.

    Fails with INVALID_RECORD, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, INVALID_TIMESTAMP,
    RECORD_LIST_TOO_LARGE, or UNKNOWN_SERVER_ERROR for records that cannot be decompressed or
    rebuilt.
    """
    refusal = _refuse_envelope(batch, rules)
    if refusal is not None:
        return refusal
    try:
        batch.require_valid()
        if rules.validates_records:
            records = batch.records()
            refusal = refuse_single_records(records, rules, place)
            if refusal is not None:
                return refusal
        if rules.compression is not None and batch.compression is not rules.compression:
            batch = rebuild_batch(
                batch,
                base_offset=place.base_offset,
                leader_epoch=place.leader_epoch,
                now_ms=place.now_ms,
                log_format=rules.log_format,
            )
    except MalformedBatch as malformed:
        return Refusal(malformed.error_code, malformed.reason)
    return refuse_size_in_log(batch, rules) or batch


def decide_records(
    records: UncheckedRecords, rules: AppendRules, place: LogPlace
) -> AppendDecision | NothingToAppend | Refusal:
    """Convert the records of a Produce request before version 3, and assign their offsets.

    Fails as `converted_records` does.
    """
    outcome = (
        records.outcome
        if isinstance(records, ConvertedRecords)
        else converted_records(records.data, rules, place)
    )
    return placed(outcome, rules, place) if isinstance(outcome, RecordBatch) else outcome


def converted_records(
    data: bytes | memoryview, rules: AppendRules, place: LogPlace
) -> RecordBatch | NothingToAppend | Refusal:
    """Return the batch converted from message sets of any format.

    An incomplete message at the end is dropped.

    Fails with the codes of `checked_batch`.
    """
    try:
        batches = list(split_any_batches(data))
        if not batches:
            return NothingToAppend()
        for each in batches:
            refusal = _refuse_envelope(each, rules)
            if refusal is not None:
                return refusal
            if not each.crc_is_valid():
                return Refusal(ErrorCode.CORRUPT_MESSAGE, "the checksum of a message is wrong")
        assigned = assign_offsets(
            data,
            base_offset=place.base_offset,
            leader_epoch=place.leader_epoch,
            now_ms=place.now_ms,
            log_format=rules.log_format,
        )
        batch = RecordBatch(assigned.data)
        is_all = batch.size_bytes == len(assigned.data)
        assert is_all and batch.last_offset == assigned.last_offset, (
            "a log of format 2 appends one batch at a time"
        )
        refusal = (
            refuse_single_records(batch.records(), rules, place)
            if rules.validates_records
            else None
        )
    except MalformedBatch as malformed:
        return Refusal(malformed.error_code, malformed.reason)
    return refusal or refuse_size_in_log(batch, rules) or batch
