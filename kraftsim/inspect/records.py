"""Decodes record batches: header, checksum, and every record, including compressed ones.

An error in one batch is recorded and the next one decoded, as long as its length is plausible.
Source: KIP-98, DefaultRecordBatch, DefaultRecord.
"""

from typing import Final

from kraftsim.inspect.old_messages import dissect_old_message
from kraftsim.inspect.parts import DecodeTrouble, Part
from protocol.malformed import MalformedMessage
from protocol.records.batches import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_POSITION,
    RecordBatch,
    TimestampType,
)
from protocol.records.message_sets import OldMessage, open_batch
from protocol.records.record import TornBatch, decompress

BATCH: Final = "record batch"
RECORD: Final = "record"
HEADER_KIND: Final = "record header"
RECORDS: Final = "records"
HEADER_FIELDS: Final = (
    ("base_offset", "int64", 0, 8),
    ("batch_length", "int32", 8, 12),
    ("partition_leader_epoch", "int32", 12, 16),
    ("magic", "int8", 16, 17),
    ("crc", "uint32", 17, 21),
    ("attributes", "int16", 21, 23),
    ("last_offset_delta", "int32", 23, 27),
    ("base_timestamp", "int64", 27, 35),
    ("max_timestamp", "int64", 35, 43),
    ("producer_id", "int64", 43, 51),
    ("producer_epoch", "int16", 51, 53),
    ("base_sequence", "int32", 53, 57),
    ("record_count", "int32", 57, 61),
)
"""Name, type, and position in the header."""


class _Broken(Exception):
    """A record cannot be decoded further."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason


def dissect_batches(
    content: bytes,
    start: int,
    end: int,
    path: str,
    troubles: list[DecodeTrouble],
    *,
    with_records: bool = True,
) -> list[Part]:
    """Return a part per batch between two positions; errors are appended to `troubles`."""
    batches: list[Part] = []
    position = start
    while position < end:
        place = f"{path}[{len(batches)}]"
        try:
            batch = open_batch(memoryview(content)[:end], position)
        except TornBatch as torn:
            troubles.append(
                DecodeTrouble(
                    path=place, position=position, reason=f"the last batch is torn: {torn.reason}"
                )
            )
            break
        except MalformedMessage as malformed:
            troubles.append(
                DecodeTrouble(
                    path=place, position=_place_of(content, position, end), reason=malformed.reason
                )
            )
            position = _behind(content, position, end)
            continue
        if isinstance(batch, OldMessage):
            batches.append(
                dissect_old_message(
                    batch, f"[{len(batches)}]", place, troubles, with_records=with_records
                )
            )
            position += batch.size_bytes
            continue
        part = Part(
            f"[{len(batches)}]",
            BATCH,
            position,
            position + batch.size_bytes,
            parts=_header_of(batch),
        )
        batches.append(part)
        if not batch.crc_is_valid():
            troubles.append(
                DecodeTrouble(
                    path=f"{place}.crc",
                    position=position + 17,
                    reason="the checksum does not fit the bytes",
                )
            )
            _crc_part(part).emit = "wrong"
        if with_records:
            _open(batch, part, place, troubles)
        position += batch.size_bytes
    return batches


def _header_of(batch: RecordBatch) -> list[Part]:
    parts = []
    for name, kind, first, after in HEADER_FIELDS:
        parts.append(
            Part(name, kind, batch.position + first, batch.position + after, getattr(batch, name))
        )
    attributes = parts[5]
    attributes.emit = ", ".join(attribute_text(batch.attributes))
    parts[4].emit = "ok"
    return parts


def attribute_text(attributes: int) -> list[str]:
    """Return the meaning of the attributes of a batch; default values are left out."""
    codec = ("no compression", "gzip", "snappy", "lz4", "zstd")
    number = attributes & COMPRESSION_MASK
    words = [codec[number] if number < len(codec) else f"unknown codec {number}"]
    if attributes & LOG_APPEND_TIME_BIT:
        words.append("log append time")
    words += [
        word
        for bit, word in (
            (0x10, "transactional"),
            (0x20, "control"),
            (DELETE_HORIZON_BIT, "delete horizon"),
        )
        if attributes & bit
    ]
    return words


def _crc_part(batch: Part) -> Part:
    found = batch.part("crc")
    assert found is not None, "a batch has a checksum"
    return found


def _open(batch: RecordBatch, part: Part, path: str, troubles: list[DecodeTrouble]) -> None:
    """Append the records of a batch to its part."""
    body_start = batch.position + HEADER_SIZE_BYTES
    body_end = batch.position + batch.size_bytes
    is_compressed = bool(batch.attributes & COMPRESSION_MASK)
    records = Part(RECORDS, "records", body_start, body_end, parts=[])
    assert part.parts is not None and records.parts is not None
    part.parts.append(records)
    data, position, end = batch.buffer, body_start, body_end
    if is_compressed:
        try:
            data = decompress(batch.compression, memoryview(batch.buffer)[body_start:body_end])
        except MalformedMessage as malformed:
            troubles.append(
                DecodeTrouble(path=f"{path}.records", position=body_start, reason=malformed.reason)
            )
            return
        position, end = 0, len(data)
        records.emit = f"{body_end - body_start} bytes, {len(data)} uncompressed"
    reader = RecordReader(
        bytes(data) if is_compressed else memoryview(data), end, batch, uncompressed=is_compressed
    )
    for index in range(batch.record_count):
        try:
            record, position = reader.record(position, index)
        except _Broken as broken:
            reason = broken.reason
            troubles.append(
                DecodeTrouble(
                    path=f"{path}.records[{index}]",
                    position=broken.position,
                    reason=reason,
                    uncompressed=is_compressed,
                )
            )
            return
        records.parts.append(record)
    if position != end:
        reason = f"{end - position} bytes are left behind {batch.record_count} records"
        troubles.append(
            DecodeTrouble(
                path=f"{path}.records", position=position, reason=reason, uncompressed=is_compressed
            )
        )


class RecordReader:
    """Decodes the records of one batch from their uncompressed bytes."""

    def __init__(
        self, data: bytes | memoryview, end: int, batch: RecordBatch, *, uncompressed: bool
    ) -> None:
        self._data = data
        self._end = end
        self._batch = batch
        self._uncompressed = uncompressed

    def record(self, start: int, index: int) -> tuple[Part, int]:
        """Return a record and its end position. Raises _Broken."""
        size, position = self.varint(start)
        end = position + size
        if size <= 0 or end > self._end:
            raise _Broken(start, f"a record of {size} bytes where {self._end - position} are left")
        parts = [self._part("attributes", "int8", position, position + 1, self._data[position])]
        position += 1
        delta, after = self.varint(position)
        stamped_by_broker = self._batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        timestamp = (
            self._batch.max_timestamp if stamped_by_broker else self._batch.base_timestamp + delta
        )
        parts.append(self._part("timestamp", "varlong", position, after, timestamp))
        offset_delta, position_after = self.varint(after)
        parts.append(
            self._part(
                "offset", "varint", after, position_after, self._batch.base_offset + offset_delta
            )
        )
        position = position_after
        for name in ("key", "value"):
            content, after = self._nullable_bytes(position, end)
            parts.append(self._part(name, "bytes", position, after, content))
            position = after
        headers, position = self._headers(position, end)
        parts.append(headers)
        if position != end:
            raise _Broken(position, f"the record ends at byte {position}, its length says {end}")
        return self._part(f"[{index}]", RECORD, start, end, None, parts), end

    def _headers(self, start: int, end: int) -> tuple[Part, int]:
        count, position = self.varint(start)
        if not 0 <= count <= end - position:
            raise _Broken(start, f"{count} headers in {end - position} bytes")
        headers: list[Part] = []
        for _ in range(count):
            header_start = position
            name, position = self._nullable_bytes(position, end)
            if name is None:
                raise _Broken(header_start, "a header without a key")
            value, position = self._nullable_bytes(position, end)
            headers.append(
                self._part(
                    name.decode(errors="backslashreplace"),
                    HEADER_KIND,
                    header_start,
                    position,
                    value,
                )
            )
        return self._part("headers", "headers", start, position, None, headers), position

    def _nullable_bytes(self, start: int, end: int) -> tuple[bytes | None, int]:
        size, position = self.varint(start)
        if size < 0:
            return None, position
        if position + size > end:
            raise _Broken(
                start, f"{size} bytes are needed, {end - position} are left in the record"
            )
        return bytes(self._data[position : position + size]), position + size

    def varint(self, position: int) -> tuple[int, int]:
        """Read a zigzag varint of at most 64 bits. Raises _Broken."""
        value = 0
        start = position
        for shift in range(0, 70, 7):
            if position >= self._end:
                raise _Broken(start, "the records end inside a varint")
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position
        raise _Broken(start, "a varint of more than ten bytes")

    def _part(
        self,
        name: str,
        kind: str,
        start: int,
        end: int,
        value: bytes | int | None,
        parts: list[Part] | None = None,
    ) -> Part:
        return Part(name, kind, start, end, value, parts, "", self._uncompressed)


def _place_of(content: bytes, position: int, end: int) -> int:
    """Return the position of the error in bytes that are no batch: the magic, if there is one."""
    return (
        position + MAGIC_POSITION
        if position + MAGIC_POSITION < end and content[position + MAGIC_POSITION] > MAGIC
        else position
    )


def _behind(content: bytes, position: int, end: int) -> int:
    """Return the start of the next batch if the length of a corrupt one is plausible, else the
    end.
    """
    length = int.from_bytes(content[position + 8 : position + 12], signed=True)
    following = position + LENGTH_OVERHEAD_BYTES + length
    return following if length > 0 and following <= end else end
