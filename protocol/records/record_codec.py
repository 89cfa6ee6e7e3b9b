"""The records inside a batch: decoded lazily from their uncompressed bytes, checked by their
lengths alone, and built one by one.

A broker rarely decodes them (the batch header has all that it needs), so only iteration is
optimised: varints of one byte are read inline.
Source: KIP-98 (message format 2), DefaultRecord, ByteUtils.readVarint.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from protocol.codec.choice import is_interpreted
from protocol.records.malformed_batches import MalformedRecord
from protocol.records.record import (
    HEADER_KEY_ERRORS,
    INT64_MAX,
    INT64_MIN,
    UNASSIGNED_OFFSET,
    Headers,
    Record,
    in_64_bits,
)

NULL_SIZE = b"\x01"  # -1 in zigzag form
NO_HEADERS = b"\x00"
VARINT_BITS = 32
VARLONG_BITS = 64
OFFSET_DELTA_MAX = (1 << 31) - 1
FAR = 1 << 61  # what is less far out stays inside 64 bits with any delta that is not far itself


# --------------------------------------------------------------------------------------------------
# Reading records


def read_records(
    data: bytes,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None = None,
    position: int = 0,
    end: int = -1,
) -> Iterator[Record]:
    """Yield the records from position to end (-1: the end of data); with an append timestamp every
    record has that one instead of its own.

    Raises MalformedRecord if a record does not end at its declared length, or if bytes are missing
    or left over. Sizes and deltas of one or two bytes are read in place, longer ones out of line.
    """
    end = len(data) if end < 0 else end
    if is_interpreted():
        from protocol.records.constructs import interpret_records

        yield from interpret_records(
            data, record_count, base_offset, base_timestamp, append_timestamp, position, end
        )
        return
    make, cls = tuple.__new__, Record
    try:
        for _ in range(record_count):
            size, position = data[position], position + 1
            if size > 127:
                if (second := data[position]) < 128:
                    size, position = size + (second << 7) - 0x80, position + 1
                else:
                    size, position = _read_long_varint(data, position, size)
            record_end = position + (size >> 1)
            if size & 1 or record_end > end:
                raise MalformedRecord(f"a record from {position} to {record_end} in {end} bytes")
            stamp, position = (
                data[position + 1],
                position + 2,
            )  # also over the attributes of a record, a byte that has no meaning yet
            if stamp > 127:
                if (second := data[position]) < 128:
                    stamp, position = stamp + (second << 7) - 0x80, position + 1
                else:
                    stamp, position = _read_timestamp_delta(data, position, stamp, base_timestamp)
            delta, position = data[position], position + 1
            if delta > 127:
                if (second := data[position]) < 128:
                    delta, position = delta + (second << 7) - 0x80, position + 1
                else:
                    delta, position = _read_long_varint(data, position, delta)
            size, position = data[position], position + 1
            if size > 127:
                size, position = _read_long_varint(data, position, size)
            key = None if size & 1 else data[position : (position := position + (size >> 1))]
            size, position = data[position], position + 1
            if size > 127:
                if (second := data[position]) < 128:
                    size, position = size + (second << 7) - 0x80, position + 1
                else:
                    size, position = _read_long_varint(data, position, size)
            value = None if size & 1 else data[position : (position := position + (size >> 1))]
            headers, position = (
                _read_headers(data, position) if data[position] else ((), position + 1)
            )
            if position != record_end:
                raise MalformedRecord(f"a record ends at {position}, its length says {record_end}")
            offset = base_offset + (~(delta >> 1) if delta & 1 else delta >> 1)
            timestamp = (
                base_timestamp + (~(stamp >> 1) if stamp & 1 else stamp >> 1)
                if append_timestamp is None
                else append_timestamp
            )
            yield make(cls, (offset, timestamp, key, value, headers))
    except IndexError:
        raise MalformedRecord(
            f"{record_count} records were announced, the bytes end inside one"
        ) from None
    if position != end:
        raise MalformedRecord(f"{end - position} bytes are left after {record_count} records")


def read_far_records(
    data: bytes,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None = None,
    position: int = 0,
    end: int = -1,
) -> Iterator[Record]:
    """Yield records whose base is so extreme that even a short delta may exceed 64 bits.

    An offset that does so raises MalformedRecord. A timestamp wraps around, as Java's numbers do: a
    builder may have written it.
    """
    for delta, timestamp_delta, key, value, headers in read_records(
        data, record_count, 0, 0, None, position, end
    ):
        if not INT64_MIN <= base_offset + delta <= INT64_MAX:
            raise MalformedRecord(f"offset {base_offset + delta} needs more than 64 bits")
        timestamp = (
            in_64_bits(base_timestamp + timestamp_delta)
            if append_timestamp is None
            else append_timestamp
        )
        yield Record(base_offset + delta, timestamp, key, value, headers)


# --------------------------------------------------------------------------------------------------
# Record lengths: each record must end where the next one begins, and their number must match the
# header
#
# A broker checks no more of the records that it appends: the checksum covers transmission errors,
# this covers clients that build invalid batches. (Kafka decodes all records.)
# Source: DefaultRecord.readFrom, LogValidator.

VARINT_BYTES_MAX: Final = 10
COMPARED_SIZE_MAX: Final = 8192
"""Up to this size the length of a record has at most two bytes."""
WALKED_TOGETHER: Final = 16
"""After this many records of one size, check whether more follow with the same size."""
FIRST_LOOK_AHEAD: Final = 16


def require_lengths(data: bytes | memoryview, record_count: int) -> None:
    """Raise MalformedRecord unless the lengths of so many records add up to the data."""
    try:
        end_position = _walk(data, record_count)
    except (IndexError, MalformedRecord):
        raise _ends_inside(record_count) from None
    if end_position != len(data):
        raise MalformedRecord(f"the records end at byte {end_position} of {len(data)}")


def require_lengths_in_pieces(pieces: Iterator[bytes], record_count: int) -> None:
    """Check the lengths piece by piece: nothing after the first error, or the last record, is
    decompressed.

    Raises MalformedRecord, or what the pieces raise.
    """
    first, second = next(pieces, b""), next(pieces, None)
    if second is None:
        require_lengths(first, record_count)
        return
    left, skipped_bytes, rest = record_count, 0, b""
    for piece in chain((first, second), pieces):
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
                raise _ends_inside(record_count)
            position += size_bytes
            left -= 1
        rest = data[position:]
        skipped_bytes = max(position - len(data), 0)
        if not left and rest:
            raise MalformedRecord(
                f"the records end before byte {position + len(rest)} of the bytes decompressed "
                "so far"
            )
    try:
        is_whole = not skipped_bytes and _walk(rest, left) == len(rest)
    except (IndexError, MalformedRecord):
        is_whole = False
    if not is_whole:
        raise _ends_inside(record_count)


def _ends_inside(record_count: int) -> MalformedRecord:
    return MalformedRecord(f"{record_count} records in the header, the bytes end inside one")


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
# Building records, and varints


class BuiltRecords(NamedTuple):
    """The records of a batch, and the properties in its header."""

    body: bytes
    record_count: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int


def build_records(
    records: Iterable[Record], base_offset: int, base_timestamp: int | None = None
) -> BuiltRecords:
    """Return the concatenated records; one without an offset follows the previous one.

    The base timestamp is the first record's unless given.
    """
    interpreted = _interpreted_builder() if is_interpreted() else None
    chunks: list[bytes] = []
    timestamps: list[int] = []
    next_offset = base_offset
    for offset, timestamp, key, value, headers in records:
        offset_delta = (next_offset if offset == UNASSIGNED_OFFSET else offset) - base_offset
        assert base_offset + offset_delta >= next_offset, (
            "offsets grow inside a batch and start at its base offset"
        )
        assert offset_delta <= OFFSET_DELTA_MAX, "a batch spans at most 2^31 offsets"
        next_offset = base_offset + offset_delta + 1
        if base_timestamp is None:
            base_timestamp = timestamp
        timestamps.append(timestamp)
        timestamp_delta = timestamp - base_timestamp
        if interpreted is not None:
            chunks.append(interpreted(timestamp_delta, offset_delta, key, value, headers))
            continue
        body = b"\x00%b%b%b%b%b%b%b" % (
            build_varint(
                timestamp_delta if -FAR < timestamp_delta < FAR else in_64_bits(timestamp_delta)
            ),
            build_varint(offset_delta),
            NULL_SIZE if key is None else build_varint(len(key)),
            key or b"",
            NULL_SIZE if value is None else build_varint(len(value)),
            value or b"",
            _build_headers(headers) if headers else NO_HEADERS,
        )
        chunks.append(build_varint(len(body)))
        chunks.append(body)
    assert timestamps and base_timestamp is not None, "a batch has at least one record"
    return BuiltRecords(
        b"".join(chunks), len(timestamps), next_offset - 1, base_timestamp, max(timestamps)
    )


def _interpreted_builder() -> Callable[[int, int, bytes | None, bytes | None, Headers], bytes]:
    from protocol.records.constructs import build_record

    return build_record


def build_varint(value: int) -> bytes:
    """Return a signed integer in zigzag encoding, seven bits per byte, lowest first; the caller
    checks the range.
    """
    if -64 <= value < 64:
        return _ONE_BYTE_VARINTS[value]
    zigzag = value << 1 if value >= 0 else ~value << 1 | 1
    if zigzag < 0x4000:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7))
    return _build_unsigned(zigzag)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a signed integer of at most 64 bits and its end position."""
    zigzag = data[position]
    position += 1
    if zigzag > 127:
        zigzag, position = _read_long_varint(data, position, zigzag, VARLONG_BITS)
    return (zigzag >> 1) ^ -(zigzag & 1), position


def _build_headers(headers: Headers) -> bytes:
    chunks = [build_varint(len(headers))]
    for key, value in headers:
        encoded_key = key.encode(errors=HEADER_KEY_ERRORS)
        chunks += (build_varint(len(encoded_key)), encoded_key)
        chunks += (NULL_SIZE,) if value is None else (build_varint(len(value)), value)
    return b"".join(chunks)


def headers_at(data: bytes, position: int) -> tuple[Headers, int]:
    """Return the headers of a record from their count on, and the position after them.

    Raises MalformedRecord.
    """
    try:
        return _read_headers(data, position)
    except IndexError:
        raise MalformedRecord("the bytes end inside a header") from None


def _read_headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = _read_size(data, position)
    if not 0 <= count <= len(data) - position:
        raise MalformedRecord(f"{count} headers in {len(data) - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key_size, position = _read_size(data, position)
        if key_size < 0:
            raise MalformedRecord("a header without a key")
        key = data[position : position + key_size].decode(errors=HEADER_KEY_ERRORS)
        value_size, position = _read_size(data, position + key_size)
        if value_size < 0:
            headers.append((key, None))
        else:
            headers.append((key, data[position : position + value_size]))
            position += value_size
    return tuple(headers), position


def _read_size(data: bytes, position: int) -> tuple[int, int]:
    zigzag = data[position]
    position += 1
    if zigzag > 127:
        zigzag, position = _read_long_varint(data, position, zigzag)
    return (zigzag >> 1) ^ -(zigzag & 1), position


def _read_timestamp_delta(
    data: bytes, position: int, first_byte: int, base_timestamp: int
) -> tuple[int, int]:
    """Return, in zigzag encoding, the delta to a timestamp of 64 bits."""
    zigzag, position = _read_long_varint(data, position, first_byte, VARLONG_BITS)
    if zigzag < FAR:
        return zigzag, position
    delta = in_64_bits(base_timestamp + ((zigzag >> 1) ^ -(zigzag & 1))) - base_timestamp
    return delta << 1 if delta >= 0 else ~delta << 1 | 1, position


def _read_long_varint(
    data: bytes, position: int, first_byte: int, bits: int = VARINT_BITS
) -> tuple[int, int]:
    """Continue after a first byte whose high bit is set.

    Bits that do not fit into the last byte are dropped, as ByteUtils does.
    """
    value = first_byte & 0x7F
    for shift in range(7, bits + 3, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value & ((1 << bits) - 1), position
    raise MalformedRecord(f"a varint of more than {bits // 7 + 1} bytes")


def _build_unsigned(value: int) -> bytes:
    septets = bytearray()
    while value > 127:
        septets.append(value & 0x7F | 0x80)
        value >>= 7
    septets.append(value)
    return bytes(septets)


# Indexed by the value itself: 0 to 63 from the front, -64 to -1 from the back, as in Python.
_ONE_BYTE_VARINTS = tuple(
    _build_unsigned(value << 1 if value >= 0 else ~value << 1 | 1)
    for value in (*range(64), *range(-64, 0))
)
