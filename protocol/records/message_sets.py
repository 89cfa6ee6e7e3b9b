"""Message sets, formats 0 and 1: the formats of producers before 0.11 and of old logs.

Views and a builder.

A message is a record, or a wrapper: a message without key whose value is a compressed message set.
In format 0 the inner messages have their offset in the log; in format 1 they count from 0, and only
the wrapper has the offset of the last. Conversion is done elsewhere.
Source: KIP-31 (relative offsets), KIP-32 (timestamps); LegacyRecord, AbstractLegacyRecordBatch,
ByteBufferLogInputStream; verified against Kafka 3.9.1.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from protocol.codec.choice import is_interpreted
from protocol.codec.fixed import fixed
from protocol.errors import ErrorCode
from protocol.records.batches import (
    COMPRESSION_MASK,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC_POSITION,
    BatchSplitter,
    RecordBatch,
    TimestampType,
)
from protocol.records.record import (
    INT64_MAX,
    INT64_MIN,
    NO_TIMESTAMP,
    UNASSIGNED_OFFSET,
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
)
from protocol.schema import int32, int64, structure, uint32
from protocol.schema import struct as nested

# --------------------------------------------------------------------------------------------------
# Message sets, formats 0 and 1: the formats of producers before 0.11 and of old logs. A view of a
# message, for shallow or deep iteration.
#
# A message is a record, or a wrapper: a message without key whose value is a compressed message
# set. In format 0 the inner messages have their offset in the log; in format 1 they count from 0,
# and only the wrapper has the offset of the last. Conversion is done elsewhere.
# Source: KIP-31 (relative offsets), KIP-32 (timestamps); LegacyRecord, AbstractLegacyRecordBatch,
# ByteBufferLogInputStream; verified against Kafka 3.9.1.


@structure
class OffsetAndSize:
    """The start of an entry of a log, in any format."""

    offset: int = int64()
    size: int = int32()


@structure
class OldHeader:
    """What stands before the magic byte, and with it the format."""

    start: OffsetAndSize = nested(OffsetAndSize)
    crc: int = uint32()


@structure
class OldTimestamp:
    """In format 1, after the attributes."""

    timestamp: int = int64()


@structure
class ContentSize:
    """The size of a key or a value; a negative one is null."""

    size: int = int32()


BEFORE_MAGIC: Final = fixed(OldHeader)
OFFSET_AND_SIZE: Final = fixed(OffsetAndSize)
TIMESTAMP: Final = fixed(OldTimestamp)
SIZE: Final = fixed(ContentSize)
ATTRIBUTES_POSITION: Final = MAGIC_POSITION + 1
TIMESTAMP_POSITION: Final = ATTRIBUTES_POSITION + 1
KEY_POSITIONS: Final = (TIMESTAMP_POSITION, TIMESTAMP_POSITION + TIMESTAMP.size)
"""The position of the key size, by format."""
CONTENT_BYTES_MIN: Final = 14
"""Checksum, magic, attributes, and two sizes: a message of format 0 with neither key nor value.

Smaller is garbage in any format.
"""
NEWEST_OLD_MAGIC: Final = 1


class OldMessage:
    """One message inside a buffer, which it keeps alive and never copies; `offset` is that of the
    last record in it.

    Raises TornBatch when the buffer ends too early, UnsupportedMagic, or MalformedBatch. The
    checksum is not verified: use `crc_is_valid`.
    """

    __slots__ = (
        "attributes",
        "buffer",
        "crc",
        "magic",
        "offset",
        "position",
        "size_bytes",
        "timestamp",
    )

    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp: int

    def __init__(self, buffer: Bytes, position: int = 0) -> None:
        left = len(buffer) - position
        if left < LENGTH_OVERHEAD_BYTES:
            raise TornBatch(
                f"{left} bytes, offset and size of a message take {LENGTH_OVERHEAD_BYTES}", position
            )
        self.offset, content_bytes = OFFSET_AND_SIZE.unpack_from(buffer, position)
        if content_bytes < CONTENT_BYTES_MIN:
            raise MalformedBatch(
                f"a message of {content_bytes} bytes, the least is {CONTENT_BYTES_MIN}",
                position,
                ErrorCode.CORRUPT_MESSAGE,
            )
        if left <= MAGIC_POSITION:
            raise TornBatch(
                f"{left} bytes, the message format stands behind {MAGIC_POSITION}", position
            )
        self.magic = magic = int.from_bytes(
            buffer[position + MAGIC_POSITION : position + MAGIC_POSITION + 1], signed=True
        )
        if not 0 <= magic <= NEWEST_OLD_MAGIC:
            raise UnsupportedMagic(magic, position, spoken="0 and 1 are")
        self.size_bytes = size_bytes = LENGTH_OVERHEAD_BYTES + content_bytes
        if left < size_bytes:
            raise TornBatch(f"{size_bytes} bytes announced, {left} are there", position)
        if size_bytes < KEY_POSITIONS[magic] + 2 * SIZE.size:
            raise MalformedBatch(
                f"a message of {size_bytes} bytes is too short for its header",
                position,
                ErrorCode.CORRUPT_MESSAGE,
            )
        _, _, self.crc = BEFORE_MAGIC.unpack_from(buffer, position)
        self.attributes = buffer[position + ATTRIBUTES_POSITION]
        self.timestamp = (
            TIMESTAMP.unpack_from(buffer, position + TIMESTAMP_POSITION)[0]
            if magic
            else NO_TIMESTAMP
        )
        self.buffer = buffer
        self.position = position

    @property
    def last_offset(self) -> int:
        """Offset of the last record in it."""
        return self.offset

    @property
    def next_offset(self) -> int:
        """The first offset after it."""
        return self.offset + 1

    @property
    def base_offset(self) -> int:
        """Offset of the first record in it, for which a wrapper must be decompressed.

        Raises as `records` does.
        """
        return next(self.records()).offset

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its records, which a wrapper contains; NO_TIMESTAMP in
        format 0.
        """
        return self.timestamp

    @property
    def compression(self) -> Compression:
        """The codec of its value. Raises UndecodableRecords for an unknown one."""
        try:
            return Compression(self.attributes & COMPRESSION_MASK)
        except ValueError:
            raise UndecodableRecords(
                f"there is no codec {self.attributes & COMPRESSION_MASK}", self.position
            ) from None

    @property
    def timestamp_type(self) -> TimestampType | None:
        """Its timestamp type; None in format 0, which has no timestamps."""
        if self.magic == 0:
            return None
        return (
            TimestampType.LOG_APPEND_TIME
            if self.attributes & LOG_APPEND_TIME_BIT
            else TimestampType.CREATE_TIME
        )

    @property
    def key(self) -> bytes | None:
        """Raises MalformedRecord for a size that exceeds the message."""
        return self._sized(self.position + KEY_POSITIONS[self.magic])[0]

    @property
    def value(self) -> bytes | None:
        """The value of a record, or the compressed messages of a wrapper.

        Raises MalformedRecord for a size that exceeds the message.
        """
        return self._sized(self._sized(self.position + KEY_POSITIONS[self.magic])[1])[0]

    def view(self) -> memoryview:
        """Return the whole message, uncopied."""
        return memoryview(self.buffer)[self.position : self.position + self.size_bytes]

    def crc_is_valid(self) -> bool:
        """Compare the checksum with the bytes it covers (CRC-32 from the message format to the
        end).
        """
        return (
            zlib.crc32(
                memoryview(self.buffer)[
                    self.position + MAGIC_POSITION : self.position + self.size_bytes
                ]
            )
            == self.crc
        )

    def inner_messages(self) -> Iterator["OldMessage"]:
        """Decompress a wrapper and yield its messages with their inner offsets.

        Torn bytes at the end are ignored.

        Raises MalformedBatch and its subclasses. At most one of the messages is in memory, unless
        the caller keeps them.
        """
        return _walk_inner(self._unpacked(), self.position)

    def records(self) -> Iterator[Record]:
        """Yield the record, or all records of a wrapper.

        Raises UndecodableRecords, MalformedRecord or MalformedBatch, at the latest at the end.
        """
        if not self.attributes & COMPRESSION_MASK:
            yield Record(self.offset, self.timestamp, self.key, self.value)
            return
        plain = self._unpacked()
        base_offset = self._inner_base_offset(plain) if self.magic else 0
        is_stamped = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        for message in _walk_inner(plain, self.position):
            if message.attributes & COMPRESSION_MASK:
                raise MalformedRecord("a wrapper inside a wrapper", self.position)
            offset = base_offset + message.offset
            if not INT64_MIN <= offset <= INT64_MAX:
                raise MalformedRecord(f"offset {offset} needs more than 64 bits", self.position)
            timestamp = self.timestamp if is_stamped and message.magic else message.timestamp
            yield Record(offset, timestamp, message.key, message.value)

    def with_offset(self, offset: int) -> list[bytes | memoryview]:
        """Return the message for appending to a log: eight new bytes, then the rest uncopied.

        The checksum stays valid.
        """
        return [TIMESTAMP.pack(offset), self.view()[TIMESTAMP.size :]]

    def with_timestamp(
        self, offset: int, timestamp_type: TimestampType, timestamp: int
    ) -> list[bytes | memoryview]:
        """Return a message of format 1 with another offset, timestamp and timestamp type, and a new
        checksum; the rest uncopied.
        """
        assert self.magic == NEWEST_OLD_MAGIC, "only format 1 has a timestamp"
        attributes = self.attributes & COMPRESSION_MASK | LOG_APPEND_TIME_BIT * timestamp_type
        covered = bytes((self.magic, attributes)) + TIMESTAMP.pack(timestamp)
        rest = self.view()[KEY_POSITIONS[self.magic] :]
        crc = zlib.crc32(rest, zlib.crc32(covered))
        return [
            BEFORE_MAGIC.pack(offset, self.size_bytes - LENGTH_OVERHEAD_BYTES, crc) + covered,
            rest,
        ]

    def _unpacked(self) -> bytes:
        codec = self.compression
        value = self.value
        if codec is Compression.ZSTD:
            raise MalformedRecord("zstd came after wrapped messages", self.position)
        if value is None:
            raise MalformedRecord("a wrapper without a value", self.position)
        return decompress(codec, value, self.magic)

    def _inner_base_offset(self, plain: bytes) -> int:
        """Return what to add to the inner offsets: the wrapper has the offset of the last one.
        librdkafka once left it at 0, which did no harm.
        """
        last_inner_offset = 0
        for message in _walk_inner(plain, self.position):
            last_inner_offset = message.offset
        if self.offset == 0:
            return 0
        if self.offset < last_inner_offset:
            raise MalformedRecord(
                f"a wrapper with offset {self.offset} around a message with {last_inner_offset}",
                self.position,
            )
        return self.offset - last_inner_offset

    def _sized(self, position: int) -> tuple[bytes | None, int]:
        """Return the bytes after their size, and their end position; a negative size is null."""
        end = self.position + self.size_bytes
        if position + SIZE.size > end:
            raise MalformedRecord("a message ends inside a size", self.position)
        (size,) = SIZE.unpack_from(self.buffer, position)
        position += SIZE.size
        if size < 0:
            return None, position
        if position + size > end:
            raise MalformedRecord(f"{size} bytes where {end - position} are left", self.position)
        return bytes(self.buffer[position : position + size]), position + size

    def __repr__(self) -> str:
        return (
            f"<OldMessage magic={self.magic} offset={self.offset} attributes={self.attributes} "
            f"{self.size_bytes} bytes>"
        )


def _walk_inner(plain: bytes, wrapper_position: int) -> Iterator[OldMessage]:
    messages = BatchSplitter(plain, 0, OldMessage)
    yield from messages
    if messages.end_position == 0:
        raise MalformedRecord("a wrapper without messages", wrapper_position)


AnyBatch = RecordBatch | OldMessage


def open_batch(buffer: Bytes, position: int = 0) -> AnyBatch:
    """Return the batch or message at a position, by its message format. Raises as the two do."""
    magic_position = position + MAGIC_POSITION
    if magic_position < len(buffer) and buffer[magic_position] > NEWEST_OLD_MAGIC:
        return RecordBatch(buffer, position)
    return OldMessage(buffer, position)


def split_any_batches(buffer: Bytes, position: int = 0) -> BatchSplitter[AnyBatch]:
    """Iterate over batches and messages of all formats, as in a log from before 0.11; a torn tail
    ends the iteration.
    """
    return BatchSplitter(buffer, position, open_batch)


# --------------------------------------------------------------------------------------------------
# Builds message sets, formats 0 and 1: as producers before 0.11 sent them, and as a broker returns
# them to such consumers.
#
# Uncompressed, every record is a message of its own; compressed, all are wrapped into one. The
# wrapper has the offset of the last record and the timestamp of the newest one.
# Source: MemoryRecordsBuilder, LegacyRecord, KIP-31, KIP-32; verified against Apache Kafka 3.9.1.

NULL: Final = SIZE.pack(-1)


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    append_timestamp: int | None = None,
) -> bytes:
    """Return a message set; records with an offset keep it, the others continue from the previous
    one. No records give no bytes.

    With an append timestamp every message has LogAppendTime (format 1). Records have no headers:
    the format does not support them.
    """
    assert 0 <= magic <= NEWEST_OLD_MAGIC, "a message set has format 0 or 1"
    assert compression is not Compression.ZSTD, "zstd came after message sets"
    stamp = LOG_APPEND_TIME_BIT if magic and append_timestamp is not None else 0
    relative_to = base_offset if magic and compression is not Compression.NONE else 0
    chunks: list[bytes] = []
    next_offset, max_timestamp = base_offset, NO_TIMESTAMP
    for offset, timestamp, key, value, headers in records:
        assert not headers, "message sets have no headers"
        if offset == UNASSIGNED_OFFSET:
            offset = next_offset
        assert offset >= next_offset, (
            "offsets grow inside a message set and start at its base offset"
        )
        if append_timestamp is not None:
            timestamp = append_timestamp
        chunks.append(build_message(magic, offset - relative_to, stamp, timestamp, key, value))
        next_offset, max_timestamp = offset + 1, max(timestamp, max_timestamp)
    if compression is Compression.NONE or not chunks:
        return b"".join(chunks)
    packed = compress(compression, b"".join(chunks), magic)
    return build_message(magic, next_offset - 1, compression | stamp, max_timestamp, None, packed)


def build_message(
    magic: int, offset: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    """Return one message: a record, or a wrapper if the attributes contain a codec.

    `offset` is the offset field.
    """
    if is_interpreted():
        from protocol.records.constructs import build_old_message

        return build_old_message(magic, offset, attributes, timestamp, key, value)
    covered = b"".join(
        (
            bytes((magic, attributes)),
            TIMESTAMP.pack(timestamp) if magic else b"",
            NULL if key is None else SIZE.pack(len(key)),
            key or b"",
            NULL if value is None else SIZE.pack(len(value)),
            value or b"",
        )
    )
    return (
        BEFORE_MAGIC.pack(
            offset, BEFORE_MAGIC.size - LENGTH_OVERHEAD_BYTES + len(covered), zlib.crc32(covered)
        )
        + covered
    )
