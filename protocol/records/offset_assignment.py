"""What a leader does to a producer's records before it appends them: validation, offsets,
timestamps, and conversion to the format of the log.

Records stay the bytes that the producer sent wherever offsets and timestamps can be set in place;
otherwise all of them are rebuilt. The limits of a topic for sizes, keys and timestamps are not
checked here.
Source: LogValidator, UnifiedLog.analyzeAndValidateRecords; KIP-31, KIP-32, KIP-98; verified against
Apache Kafka 3.9.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from protocol.errors import ErrorCode
from protocol.records.batches import (
    COMPRESSION_MASK,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RecordBatch,
    TimestampType,
    build_batch,
)
from protocol.records.compression import Bytes, Compression
from protocol.records.down_conversion import require_convertible
from protocol.records.malformed_batches import MalformedBatch, UnconvertibleBatch
from protocol.records.message_sets import AnyBatch, OldMessage, build_message_set, split_any_batches
from protocol.records.record import NO_TIMESTAMP, Record


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
