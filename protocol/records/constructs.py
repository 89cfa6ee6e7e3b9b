"""Records as constructs: those inside a batch (format 2), and the messages of formats 0 and 1.

`record_codec` and `message_sets` read and write the same by hand: records are
decoded lazily, into tuples, with offsets and timestamps added to those of the batch, and old
messages only when they are converted. With `--codec construct` these structures do it; tests
compare the two.
Source: KIP-98 (message format 2), KIP-31 and KIP-32 (formats 0 and 1), DefaultRecord, LegacyRecord,
ByteUtils.
"""

import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import IO, Any

import construct

from protocol.codec.declaration import Primitive
from protocol.codec.types import (
    FIXED,
    INT8,
    INT32,
    Blob,
    WireError,
    WireType,
    plain_length,
    read_exactly,
)
from protocol.records.record import (
    HEADER_KEY_ERRORS,
    INT64_MAX,
    INT64_MIN,
    Headers,
    MalformedRecord,
    Record,
    in_64_bits,
)

VARINT_BITS = 32
VARLONG_BITS = 64
BEFORE_MAGIC_BYTES = 16
LENGTH_OVERHEAD_BYTES = 12


class SignedVarint(WireType):
    """A signed number in zigzag form, seven bits per byte, lowest first; bits that do not fit into
    the last byte are dropped, as in Kafka.
    """

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits

    def _parse(self, stream: IO[bytes], context: object, path: str) -> int:
        start = stream.tell()
        value = 0
        for shift in range(0, self.bits + 3, 7):
            byte = read_exactly(stream, 1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                value &= (1 << self.bits) - 1
                return value >> 1 ^ -(value & 1)
        raise WireError(path, f"a varint of more than {self.bits // 7 + 1} bytes", start)

    def _build(self, obj: int, stream: IO[bytes], context: object, path: str) -> object:
        rest = obj << 1 if obj >= 0 else ~obj << 1 | 1
        if rest >> self.bits:
            raise WireError(path, f"{obj} needs more than {self.bits} bits")
        while rest > 0x7F:
            stream.write(bytes((rest & 0x7F | 0x80,)))
            rest >>= 7
        stream.write(bytes((rest,)))
        return obj


class VarintBytes(WireType):
    """Bytes after their length; a negative length is null."""

    def __init__(self, *, nullable: bool) -> None:
        super().__init__()
        self.nullable = nullable

    def _parse(self, stream: IO[bytes], context: object, path: str) -> bytes | None:
        start = stream.tell()
        size = VARINT._parse(stream, context, path)
        if size >= 0:
            return read_exactly(stream, size, path)
        if not self.nullable:
            raise WireError(path, "null, but not nullable", start)
        return None

    def _build(self, obj: bytes | None, stream: IO[bytes], context: object, path: str) -> object:
        VARINT._build(-1 if obj is None else len(obj), stream, context, path)
        stream.write(obj or b"")
        return obj


class VarintArray(WireType):
    """Elements after their count."""

    def __init__(self, element: construct.Construct) -> None:
        super().__init__()
        self.element = element

    def _parse(self, stream: IO[bytes], context: object, path: str) -> list[object]:
        start = stream.tell()
        count = VARINT._parse(stream, context, path)
        if count < 0:
            raise WireError(path, f"{count} elements", start)
        return [
            self.element._parsereport(stream, context, f"{path}[{index}]") for index in range(count)
        ]

    def _build(self, obj: list[object], stream: IO[bytes], context: object, path: str) -> object:
        VARINT._build(len(obj), stream, context, path)
        for index, element in enumerate(obj):
            self.element._build(element, stream, context, f"{path}[{index}]")
        return obj


VARINT, VARLONG = SignedVarint(VARINT_BITS), SignedVarint(VARLONG_BITS)

RECORD_HEADER = construct.Struct(
    "key" / VarintBytes(nullable=False), "value" / VarintBytes(nullable=True)
)

RECORD = construct.Prefixed(
    VARINT,
    construct.Struct(
        "attributes" / INT8,
        "timestamp_delta" / VARLONG,
        "offset_delta" / VARINT,
        "key" / VarintBytes(nullable=True),
        "value" / VarintBytes(nullable=True),
        "headers" / VarintArray(RECORD_HEADER),
        construct.Terminated,
    ),
)
"""A record inside a batch; offset and timestamp are relative to the batch."""

_CONTENT = Blob(Primitive.BYTES, plain_length(INT32, nullable=True))

OLD_MESSAGE = construct.Struct(
    "offset" / FIXED[Primitive.INT64],
    "size" / INT32,
    "crc" / FIXED[Primitive.UINT32],
    "magic" / INT8,
    "attributes" / INT8,
    "timestamp" / construct.If(construct.this.magic == 1, FIXED[Primitive.INT64]),
    "key" / _CONTENT,
    "value" / _CONTENT,
)
"""A message of format 0 or 1: a record, or a wrapper whose value is a compressed message set."""


def interpret_records(
    data: bytes,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    position: int,
    end: int,
) -> Iterator[Record]:
    """Yield what `record_codec.read_records` yields."""
    stream = BytesIO(data[:end])
    stream.seek(position)
    for _ in range(record_count):
        try:
            found: Any = RECORD.parse_stream(stream)
        except construct.ConstructError as error:
            raise MalformedRecord(str(error)) from error
        offset = base_offset + found.offset_delta
        if not INT64_MIN <= offset <= INT64_MAX:
            raise MalformedRecord(f"offset {offset} needs more than 64 bits")
        timestamp = (
            in_64_bits(base_timestamp + found.timestamp_delta)
            if append_timestamp is None
            else append_timestamp
        )
        headers = tuple(
            (header.key.decode(errors=HEADER_KEY_ERRORS), header.value) for header in found.headers
        )
        yield Record(offset, timestamp, found.key, found.value, headers)
    if stream.tell() != end:
        raise MalformedRecord(f"{end - stream.tell()} bytes are left after {record_count} records")


def build_record(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> bytes:
    """Return a record with its length."""
    built = RECORD.build(
        {
            "attributes": 0,
            "timestamp_delta": in_64_bits(timestamp_delta),
            "offset_delta": offset_delta,
            "key": key,
            "value": value,
            "headers": [
                {"key": name.encode(errors=HEADER_KEY_ERRORS), "value": content}
                for name, content in headers
            ],
        }
    )
    return bytes(built)


def build_old_message(
    magic: int, offset: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    """Return one message of format 0 or 1, as `message_sets.build_message` does."""
    fields = {
        "offset": offset,
        "magic": magic,
        "attributes": attributes,
        "timestamp": timestamp,
        "key": key,
        "value": value,
    }
    content = OLD_MESSAGE.build({**fields, "size": 0, "crc": 0})[BEFORE_MAGIC_BYTES:]
    return bytes(
        OLD_MESSAGE.build(
            {
                **fields,
                "size": BEFORE_MAGIC_BYTES - LENGTH_OVERHEAD_BYTES + len(content),
                "crc": zlib.crc32(content),
            }
        )
    )
