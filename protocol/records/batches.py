"""Record batches, message format 2: a view that decodes the header once and leaves the records
unparsed, and a builder.

The same bytes travel from socket to disk and back as the producer built them: the broker may change
only base offset and leader epoch, which the checksum does not cover.
Source: KIP-98, DefaultRecordBatch, ByteBufferLogInputStream.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Final, Generic, Protocol, TypeVar

from crc32c import crc32c

from protocol.codec.fixed import fixed
from protocol.errors import ErrorCode
from protocol.records.record import (
    NO_TIMESTAMP,
    Bytes,
    Compression,
    MalformedBatch,
    MalformedRecord,
    Record,
    TornBatch,
    UndecodableRecords,
    UnsupportedMagic,
    compress,
    decompress,
    decompress_in_pieces,
)
from protocol.records.record_codec import (
    FAR,
    build_records,
    read_far_records,
    read_records,
    require_lengths,
    require_lengths_in_pieces,
)
from protocol.schema import int8, int16, int32, int64, structure, uint32
from protocol.schema import struct as nested


@structure
class RewrittenHeader:
    """What a broker rewrites when it appends a batch."""

    base_offset: int = int64()
    batch_length: int = int32()
    partition_leader_epoch: int = int32()


@structure
class HeaderBeforeCrc:
    """What the checksum does not cover."""

    rewritten: RewrittenHeader = nested(RewrittenHeader)
    magic: int = int8()


@structure
class HeaderChecksum:
    """CRC-32C of everything after it."""

    crc: int = uint32()


@structure
class CoveredHeader:
    """The header from the attributes on."""

    attributes: int = int16()
    last_offset_delta: int = int32()
    base_timestamp: int = int64()
    max_timestamp: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    base_sequence: int = int32()
    record_count: int = int32()


@structure
class BatchHeader:
    """The header of a batch; the records follow."""

    before_crc: HeaderBeforeCrc = nested(HeaderBeforeCrc)
    checksum: HeaderChecksum = nested(HeaderChecksum)
    covered: CoveredHeader = nested(CoveredHeader)


HEADER: Final = fixed(BatchHeader)
HEADER_SIZE_BYTES: Final = HEADER.size  # 61
BEFORE_CRC: Final = fixed(HeaderBeforeCrc)
COVERED_HEADER: Final = fixed(CoveredHeader)
REWRITTEN: Final = fixed(RewrittenHeader)
CRC: Final = fixed(HeaderChecksum)
LENGTH_OVERHEAD_BYTES: Final = 12  # base offset and the length itself are not counted in the length
MAGIC_POSITION: Final = 16
COVERED_POSITION: Final = 21
MAGIC: Final = 2

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
KNOWN_BITS: Final = 0x7F

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
SEQUENCES: Final = 1 << 31  # sequence numbers start again at 0 after 2^31 - 1


class TimestampType(IntEnum):
    """Timestamp type: CreateTime of the producer, or LogAppendTime of the broker."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class RecordBatch:
    """One batch inside a buffer, which it keeps alive and never copies; header fields are
    attributes.

    Raises TornBatch when the buffer ends too early, UnsupportedMagic, or MalformedBatch. The
    checksum is not verified: use `crc_is_valid`.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "buffer",
        "crc",
        "is_control",
        "last_offset",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "next_offset",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
    )

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    last_offset: int
    """Offset of the last record the batch was built with; compaction may have removed that
    record.
    """
    next_offset: int
    """The first offset after this batch."""
    is_control: bool
    """Whether the batch contains control records instead of a producer's records."""

    def __init__(self, buffer: Bytes, position: int = 0) -> None:
        if len(buffer) < position + HEADER_SIZE_BYTES:
            raise _too_short(buffer, position)
        (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(buffer, position)
        self.last_offset = last_offset = self.base_offset + self.last_offset_delta
        self.next_offset = last_offset + 1
        self.is_control = bool(self.attributes & CONTROL_BIT)
        self.buffer = buffer
        self.position = position
        self.size_bytes = size_bytes = self.batch_length + LENGTH_OVERHEAD_BYTES
        if self.magic != MAGIC:
            raise UnsupportedMagic(self.magic, position)
        if size_bytes < HEADER_SIZE_BYTES:
            raise MalformedBatch(
                f"a batch of {size_bytes} bytes is smaller than its header",
                position,
                ErrorCode.CORRUPT_MESSAGE,
            )
        if len(buffer) < position + size_bytes:
            raise TornBatch(
                f"{size_bytes} bytes announced, {len(buffer) - position} are there", position
            )

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, or NO_SEQUENCE."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCES

    @property
    def compression(self) -> Compression:
        """The codec of the records. Raises UndecodableRecords for an unknown one."""
        try:
            return Compression(self.attributes & COMPRESSION_MASK)
        except ValueError:
            raise UndecodableRecords(
                f"there is no codec {self.attributes & COMPRESSION_MASK}", self.position
            ) from None

    @property
    def timestamp_type(self) -> TimestampType:
        """The timestamp type of the records."""
        return (
            TimestampType.LOG_APPEND_TIME
            if self.attributes & LOG_APPEND_TIME_BIT
            else TimestampType.CREATE_TIME
        )

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The delete horizon of the tombstones or the marker in it, which the base timestamp then
        contains; None until it is compacted.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote it."""
        return self.producer_id > NO_PRODUCER_ID

    def view(self) -> memoryview:
        """Return the whole batch, uncopied."""
        return memoryview(self.buffer)[self.position : self.position + self.size_bytes]

    def crc_is_valid(self) -> bool:
        """Compare the checksum with the bytes it covers (CRC-32C from the attributes to the
        end).
        """
        return bool(
            crc32c(
                memoryview(self.buffer)[
                    self.position + COVERED_POSITION : self.position + self.size_bytes
                ]
            )
            == self.crc
        )

    def require_valid(self) -> None:
        """Check a producer's batch without decoding its records: the checksum, the header, and the
        lengths of the records.

        Raises MalformedBatch with the error code for the producer: CORRUPT_MESSAGE, INVALID_RECORD,
        or UNKNOWN_SERVER_ERROR for records that cannot be decompressed.
        """
        if not self.crc_is_valid():
            raise MalformedBatch(
                "the checksum of the batch is wrong", self.position, ErrorCode.CORRUPT_MESSAGE
            )
        self.require_producer_header()
        self.require_whole_records()

    def require_whole_records(self) -> None:
        """Raise MalformedRecord unless the lengths of the records add up, or UndecodableRecords."""
        body = memoryview(self.buffer)[
            self.position + HEADER_SIZE_BYTES : self.position + self.size_bytes
        ]
        if self.attributes & COMPRESSION_MASK:
            pieces = decompress_in_pieces(self.compression, body)
            require_lengths_in_pieces(pieces, self.record_count)
        else:
            require_lengths(body, self.record_count)

    def require_producer_header(self) -> None:
        """Raise MalformedBatch for a header that a producer must not send.

        Source: LogValidator.validateBatch.
        """
        if self.last_offset_delta < 0:
            reason = f"the batch ends {-self.last_offset_delta} before it begins"
        elif self.record_count != self.last_offset_delta + 1:
            reason = f"{self.record_count} records for {self.last_offset_delta + 1} offsets"
        elif self.attributes & CONTROL_BIT:
            reason = "clients must not write control batches"
        elif self.producer_id > NO_PRODUCER_ID and self.base_sequence < 0:
            reason = f"producer {self.producer_id} sent no sequence number"
        else:
            return
        raise MalformedBatch(reason, self.position)

    def records(self) -> Iterator[Record]:
        """Decompress and yield the records.

        Raises UndecodableRecords or MalformedRecord, at the latest at the end.
        """
        base_offset, base_timestamp, count = (
            self.base_offset,
            self.base_timestamp,
            self.record_count,
        )
        read = (
            read_records
            if -FAR <= base_offset <= FAR and -FAR <= base_timestamp <= FAR
            else read_far_records
        )
        append_timestamp = self.max_timestamp if self.attributes & LOG_APPEND_TIME_BIT else None
        start, end = self.position + HEADER_SIZE_BYTES, self.position + self.size_bytes
        if count < 0:
            raise MalformedRecord(f"{count} records", self.position)
        if self.attributes & COMPRESSION_MASK and start < end:
            plain = decompress(self.compression, memoryview(self.buffer)[start:end])
            return read(plain, count, base_offset, base_timestamp, append_timestamp)
        if type(self.buffer) is bytes:
            return read(
                self.buffer, count, base_offset, base_timestamp, append_timestamp, start, end
            )
        return read(
            bytes(self.buffer[start:end]), count, base_offset, base_timestamp, append_timestamp
        )

    def with_base_offset(self, base_offset: int, leader_epoch: int) -> list[bytes | memoryview]:
        """Return the batch for appending to a log: sixteen new bytes, then the rest uncopied.

        The checksum stays valid.
        """
        rest = memoryview(self.buffer)[
            self.position + MAGIC_POSITION : self.position + self.size_bytes
        ]
        return [REWRITTEN.pack(base_offset, self.batch_length, leader_epoch), rest]

    def with_log_append_time(
        self, base_offset: int, leader_epoch: int, append_timestamp: int
    ) -> list[bytes | memoryview]:
        """Return the batch with LogAppendTime: a new header with a new checksum, then the records
        uncopied.
        """
        return self.with_max_timestamp(
            base_offset, leader_epoch, TimestampType.LOG_APPEND_TIME, append_timestamp
        )

    def with_max_timestamp(
        self, base_offset: int, leader_epoch: int, timestamp_type: TimestampType, max_timestamp: int
    ) -> list[bytes | memoryview]:
        """Return the batch with another max timestamp and timestamp type: a new header with a new
        checksum, then the records uncopied.
        """
        records = memoryview(self.buffer)[
            self.position + HEADER_SIZE_BYTES : self.position + self.size_bytes
        ]
        covered = COVERED_HEADER.pack(
            self.attributes & KNOWN_BITS & ~LOG_APPEND_TIME_BIT
            | LOG_APPEND_TIME_BIT * timestamp_type,
            self.last_offset_delta,
            self.base_timestamp,
            max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )
        before = BEFORE_CRC.pack(base_offset, self.batch_length, leader_epoch, MAGIC)
        return [before + CRC.pack(crc32c(records, crc32c(covered))) + covered, records]

    def __repr__(self) -> str:
        kind = " control" if self.is_control else ""
        producer = (
            (
                f" producer_id={self.producer_id} epoch={self.producer_epoch} "
                f"base_sequence={self.base_sequence}"
            )
            if self.has_producer_id
            else ""
        )
        return (
            f"<RecordBatch{kind} offsets {self.base_offset}..{self.last_offset} "
            f"leader_epoch={self.partition_leader_epoch}{producer}>"
        )


def checksum_of(batch: Bytes) -> int:
    """Return the checksum that a whole batch should have."""
    return int(crc32c(memoryview(batch)[COVERED_POSITION:]))


def checksums_of(buffer: memoryview, batches: Iterable[tuple[int, int]]) -> list[int]:
    """Return the checksums that batches should have which lie between pairs of positions."""
    return [int(crc32c(buffer[start + COVERED_POSITION : end])) for start, end in batches]


def crc_of(header: Bytes) -> int:
    """Return the checksum in the header of a batch."""
    return int(CRC.unpack_from(header, BEFORE_CRC.size)[0])


class HasSize(Protocol):
    """What a splitter needs to know of what it yields."""

    @property
    def size_bytes(self) -> int:
        """Its size in bytes."""
        ...


Opened = TypeVar("Opened", bound=HasSize)


class BatchSplitter(Generic[Opened]):
    """Iterates over consecutive batches in a buffer, and stops at an incomplete one.

    `end_position` is the end of the complete batches, `is_torn` whether something follows; both
    also hold after a MalformedBatch was raised.
    """

    __slots__ = ("_buffer", "_open", "end_position")

    def __init__(
        self, buffer: Bytes, position: int, open_batch: Callable[[Bytes, int], Opened]
    ) -> None:
        self._buffer = buffer
        self._open = open_batch
        self.end_position = position

    def __iter__(self) -> "BatchSplitter[Opened]":
        return self

    def __next__(self) -> Opened:
        if self.end_position == len(self._buffer):
            raise StopIteration
        try:
            batch = self._open(self._buffer, self.end_position)
        except TornBatch:
            raise StopIteration from None
        self.end_position += batch.size_bytes
        return batch

    @property
    def is_torn(self) -> bool:
        """Whether bytes are left after the batches seen so far."""
        return self.end_position < len(self._buffer)


def split_batches(buffer: Bytes, position: int = 0) -> BatchSplitter[RecordBatch]:
    """Iterate over the batches from position on; a torn tail ends the iteration, garbage raises
    MalformedBatch.

    Checksums are not verified. Zeros, as a file system leaves after a power loss, are garbage.
    """
    return BatchSplitter(buffer, position, RecordBatch)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    compression: Compression = Compression.NONE,
    transactional: bool = False,
    control: bool = False,
    append_timestamp: int | None = None,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    """Return a batch of at least one record; records with an offset keep it, the others continue
    from the previous one.

    With an append timestamp the batch has LogAppendTime; a delete horizon replaces the base
    timestamp (KIP-534). `last_offset` is the last offset of the batch, if that is not its last
    record: compaction has removed others.
    """
    built = build_records(records, base_offset, delete_horizon_ms)
    body = compress(compression, built.body)
    attributes = compression | TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control
    attributes |= LOG_APPEND_TIME_BIT * (append_timestamp is not None) | DELETE_HORIZON_BIT * (
        delete_horizon_ms is not None
    )
    covered = COVERED_HEADER.pack(
        attributes,
        (built.last_offset if last_offset is None else last_offset) - base_offset,
        built.base_timestamp,
        built.max_timestamp if append_timestamp is None else append_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        built.record_count,
    )
    batch_length = HEADER_SIZE_BYTES - LENGTH_OVERHEAD_BYTES + len(body)
    before = BEFORE_CRC.pack(base_offset, batch_length, leader_epoch, MAGIC)
    return b"".join((before, CRC.pack(crc32c(body, crc32c(covered))), covered, body))


def build_empty_batch(batch: RecordBatch) -> bytes:
    """Return the empty batch that compaction keeps for the producer state when all records are
    removed: its header.

    Source: KIP-98.
    """
    covered = COVERED_HEADER.pack(
        batch.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT),
        batch.last_offset_delta,
        NO_TIMESTAMP,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        0,
    )
    before = BEFORE_CRC.pack(
        batch.base_offset,
        HEADER_SIZE_BYTES - LENGTH_OVERHEAD_BYTES,
        batch.partition_leader_epoch,
        MAGIC,
    )
    return before + CRC.pack(crc32c(covered)) + covered


def _too_short(buffer: Bytes, position: int) -> MalformedBatch:
    """Distinguish a truncated header from an old message, which may be shorter than a format 2
    header.
    """
    magic_position = position + MAGIC_POSITION
    if magic_position < len(buffer):
        magic = int.from_bytes(buffer[magic_position : magic_position + 1], signed=True)
        if magic != MAGIC:
            return UnsupportedMagic(magic, position)
    return TornBatch(f"{len(buffer) - position} bytes, a header has {HEADER_SIZE_BYTES}", position)
