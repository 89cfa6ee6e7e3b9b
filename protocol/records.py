"""The records inside a batch: read lazily from their uncompressed bytes, and built one by one.

A broker seldom looks at them (the batch header says all that it needs), so only iteration is tuned: varints of one byte are read inline.
Source: KIP-98 (message format 2), DefaultRecord, ByteUtils.readVarint.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from protocol.malformed_batches import MalformedRecord

Headers = tuple[tuple[str, bytes | None], ...]

UNASSIGNED_OFFSET = -1
NO_TIMESTAMP = -1
NULL_SIZE = b"\x01"  # -1 in zigzag form
NO_HEADERS = b"\x00"
HEADER_KEY_ERRORS = "surrogateescape"  # a broker never decodes header keys: what is not UTF-8 must pass through unharmed


class Record(NamedTuple):
    """One record. A builder numbers records whose offset is unassigned from the batch's base offset on; timestamps are milliseconds since 1970."""

    offset: int = UNASSIGNED_OFFSET
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


def read_records(data: bytes, record_count: int, base_offset: int, base_timestamp: int, append_timestamp: int | None = None) -> Iterator[Record]:
    """Yield record_count records; with an append timestamp every record carries that one instead of its own.

    Raises MalformedRecord when a record does not end where its length says, or when bytes are missing or left over.
    """
    position = 0
    size_bytes = len(data)
    make = tuple.__new__
    try:
        for _ in range(record_count):
            zigzag = data[position]
            position += 1
            if zigzag > 127 and (second := data[position]) < 128:  # two bytes: what most records need for their length, and many for their value's
                zigzag += (second << 7) - 0x80
                position += 1
            elif zigzag > 127:
                zigzag, position = _read_long_varint(data, position, zigzag)
            end_position = position + ((zigzag >> 1) ^ -(zigzag & 1))
            if not position < end_position <= size_bytes:
                raise MalformedRecord(f"a record from {position} to {end_position} in {size_bytes} bytes")
            zigzag = data[position + 1]
            position += 2  # also over the attributes of a record, a byte that has no meaning yet
            if zigzag > 127:
                zigzag, position = _read_long_varint(data, position, zigzag)
            timestamp = base_timestamp + ((zigzag >> 1) ^ -(zigzag & 1)) if append_timestamp is None else append_timestamp
            zigzag = data[position]
            position += 1
            if zigzag > 127:
                zigzag, position = _read_long_varint(data, position, zigzag)
            offset = base_offset + ((zigzag >> 1) ^ -(zigzag & 1))
            zigzag = data[position]
            position += 1
            if zigzag > 127:
                zigzag, position = _read_long_varint(data, position, zigzag)
            key = None
            if not zigzag & 1:
                key = data[position : position + (zigzag >> 1)]
                position += zigzag >> 1
            zigzag = data[position]
            position += 1
            if zigzag > 127 and (second := data[position]) < 128:
                zigzag += (second << 7) - 0x80
                position += 1
            elif zigzag > 127:
                zigzag, position = _read_long_varint(data, position, zigzag)
            value = None
            if not zigzag & 1:
                value = data[position : position + (zigzag >> 1)]
                position += zigzag >> 1
            if data[position]:
                headers, position = _read_headers(data, position)
            else:
                headers, position = (), position + 1
            if position != end_position:
                raise MalformedRecord(f"a record ends at {position}, its length says {end_position}")
            yield make(Record, (offset, timestamp, key, value, headers))
    except IndexError:
        raise MalformedRecord(f"{record_count} records were announced, the bytes end inside one") from None
    if position != size_bytes:
        raise MalformedRecord(f"{size_bytes - position} bytes are left after {record_count} records")


class BuiltRecords(NamedTuple):
    """Records as they stand in a batch, and what the header of that batch says about them."""

    body: bytes
    record_count: int
    last_offset: int
    first_timestamp: int
    max_timestamp: int


def build_records(records: Iterable[Record], base_offset: int) -> BuiltRecords:
    """Return the records behind one another; one without an offset follows the one before."""
    chunks: list[bytes] = []
    timestamps: list[int] = []
    next_offset = base_offset
    for offset, timestamp, key, value, headers in records:
        offset_delta = (next_offset if offset == UNASSIGNED_OFFSET else offset) - base_offset
        assert base_offset + offset_delta >= next_offset, "offsets grow inside a batch and start at its base offset"
        next_offset = base_offset + offset_delta + 1
        timestamps.append(timestamp)
        body = b"\x00%b%b%b%b%b%b%b" % (
            build_varint(timestamp - timestamps[0]),
            build_varint(offset_delta),
            NULL_SIZE if key is None else build_varint(len(key)),
            key or b"",
            NULL_SIZE if value is None else build_varint(len(value)),
            value or b"",
            _build_headers(headers) if headers else NO_HEADERS,
        )
        chunks.append(build_varint(len(body)))
        chunks.append(body)
    assert timestamps, "a batch has at least one record"
    return BuiltRecords(b"".join(chunks), len(timestamps), next_offset - 1, timestamps[0], max(timestamps))


def build_varint(value: int) -> bytes:
    """Return a signed integer in zigzag form, seven bits to the byte, lowest first; ranges are the caller's business."""
    if -64 <= value < 64:
        return _ONE_BYTE_VARINTS[value]
    zigzag = value << 1 if value >= 0 else ~value << 1 | 1
    if zigzag < 0x4000:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7))
    return _build_unsigned(zigzag)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a signed integer and the position after it."""
    zigzag = data[position]
    position += 1
    if zigzag > 127:
        zigzag, position = _read_long_varint(data, position, zigzag)
    return (zigzag >> 1) ^ -(zigzag & 1), position


def _build_headers(headers: Headers) -> bytes:
    chunks = [build_varint(len(headers))]
    for key, value in headers:
        encoded_key = key.encode(errors=HEADER_KEY_ERRORS)
        chunks += (build_varint(len(encoded_key)), encoded_key)
        chunks += (NULL_SIZE,) if value is None else (build_varint(len(value)), value)
    return b"".join(chunks)


def _read_headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= len(data) - position:
        raise MalformedRecord(f"{count} headers in {len(data) - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key_size, position = read_varint(data, position)
        if key_size < 0:
            raise MalformedRecord("a header without a key")
        key = data[position : position + key_size].decode(errors=HEADER_KEY_ERRORS)
        value_size, position = read_varint(data, position + key_size)
        if value_size < 0:
            headers.append((key, None))
        else:
            headers.append((key, data[position : position + value_size]))
            position += value_size
    return tuple(headers), position


def _read_long_varint(data: bytes, position: int, first_byte: int) -> tuple[int, int]:
    """Go on after a first byte whose high bit is set; ten bytes are the most that 64 bits need."""
    byte = data[position]
    position += 1
    value = first_byte - 0x80 + (byte << 7)
    if byte < 128:
        return value, position
    value &= 0x3FFF
    for shift in range(14, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, position
    raise MalformedRecord("a varint of more than ten bytes")


def _build_unsigned(value: int) -> bytes:
    septets = bytearray()
    while value > 127:
        septets.append(value & 0x7F | 0x80)
        value >>= 7
    septets.append(value)
    return bytes(septets)


# Indexed by the value itself: 0 to 63 from the front, -64 to -1 from the back, as Python counts.
_ONE_BYTE_VARINTS = tuple(_build_unsigned(value << 1 if value >= 0 else ~value << 1 | 1) for value in (*range(64), *range(-64, 0)))
