"""Reads the record batches of segments: the headers of many at a time, with numpy.

A large segment is read in ranges, which begin at batches that its offset index names; where the
ranges begin depends on the files alone, so that every reader gets the same rows. After bytes that
are no batch, the next one is searched where the broken length says, and then where the index says.

Source: KIP-98, DefaultRecordBatch, FileRecords, LogSegment (recover).
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraftsim.audit.reading.disks import FileSource
from kraftsim.audit.reading.pieces import Origin, TablePiece
from kraftsim.audit.reading.record_walk import Longs, walk
from kraftsim.audit.tables import TABLES
from protocol.malformed import MalformedMessage
from protocol.records.batches import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    RecordBatch,
    TimestampType,
    checksums_of,
)
from protocol.records.control_records import ControlType, control_type, parse_control_record
from protocol.records.message_sets import OFFSET_AND_SIZE, AnyBatch, OldMessage, open_batch
from protocol.records.record import (
    Bytes,
    Compression,
    TornBatch,
    UndecodableRecords,
    UnsupportedMagic,
)

RANGE_BYTES: Final = 64 << 20
"""A larger segment is read in ranges of about this size."""
WINDOW_BYTES: Final = 8 << 20
BATCH_BYTES_MAX: Final = 512 << 20
"""A batch with more bytes is not read as a whole."""
INDEX_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert HEADER.itemsize == HEADER_SIZE_BYTES, "these are the fields of BatchHeader"
CODECS: Final = pa.array([each.name.lower() for each in Compression] + [None] * 3)
TIMESTAMP_TYPES: Final = pa.array(["CreateTime", "LogAppendTime"])
CONTROL_TYPES: Final = pa.array([*(each.name for each in ControlType), None])
NO_CONTROL: Final = len(ControlType)
MARKER_KEY_BYTES: Final = 4
MARKER_VALUE_BYTES: Final = 6
MARKER_BATCH_BYTES: Final = HEADER_SIZE_BYTES + 17
"""Lengths, attributes, deltas and the number of headers take seven bytes in one record."""
LAST_SEQUENCE: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRange:
    """A part of a segment, from one batch up to another, or to the end of the file."""

    origin: Origin
    base_offset: int
    """In the segment's name."""
    start: int
    end: int
    is_last: bool
    """Whether it reaches to the end of the file."""
    is_newest: bool
    """Whether the segment is the newest of its partition."""
    index: Origin | None = None


class RangeEnds(NamedTuple):
    """What a range says about the offsets of its log; None without a readable batch."""

    first_offset: int | None = None
    end_offset: int | None = None


class FoundBatches(NamedTuple):
    """Batches of a range in a buffer; a position of the file is `shift` more than in the buffer.

    Either the positions of batches of format 2 in the buffer, or one message of an old format.
    """

    buffer: Bytes
    shift: int
    positions: Longs
    headers: npt.NDArray[np.void]
    crc_valid: npt.NDArray[np.bool_] | None
    old: OldMessage | None = None

    def batches(self) -> Iterator[AnyBatch]:
        """Yield the batches whose checksum is not known to be wrong."""
        if self.old is not None:
            if self.old.crc_is_valid():
                yield self.old
            return
        for number, position in enumerate(self.positions.tolist()):
            if self.crc_valid is None or self.crc_valid[number]:
                yield RecordBatch(self.buffer, position)


def ranges_of(
    disk: FileSource, origin: Origin, base_offset: int, index: Origin | None, *, is_newest: bool
) -> list[SegmentRange]:
    """Return the ranges in which a segment is read."""
    starts = [0]
    if index is not None and origin.size > RANGE_BYTES + RANGE_BYTES // 2:
        entries = index_entries(disk, index)
        positions = entries["position"].astype(np.int64)
        for wanted in range(RANGE_BYTES, origin.size - RANGE_BYTES // 2, RANGE_BYTES):
            at = int(np.searchsorted(positions, wanted))
            if at < len(positions) and starts[-1] < positions[at] < origin.size:
                offset = base_offset + int(entries["relative_offset"][at])
                if _is_batch(disk, origin, int(positions[at]), base_offset, offset):
                    starts.append(int(positions[at]))
    return [
        SegmentRange(
            origin=origin,
            base_offset=base_offset,
            start=start,
            end=end,
            is_last=end == origin.size,
            is_newest=is_newest,
            index=index,
        )
        for start, end in zip(starts, [*starts[1:], origin.size], strict=True)
    ]


def index_entries(disk: FileSource, index: Origin) -> npt.NDArray[np.void]:
    """Return the entries of an offset index up to the zeros of a preallocated one; none if it
    cannot be read.
    """
    try:
        content = disk.read(index.path, 0, index.size)
    except OSError:
        content = b""
    entries = np.frombuffer(content, INDEX_ENTRY, len(content) // INDEX_ENTRY.itemsize)
    return entries[: written_entries(entries["relative_offset"], entries["position"])]


def written_entries(*columns: npt.NDArray[np.signedinteger]) -> int:
    """Return how many entries are before the first one of zeros; the first entry may be zeros if
    others follow: else the file is the preallocated one of an empty segment.
    """
    is_zero = np.ones(len(columns[0]), bool)
    for column in columns:
        is_zero &= column == 0
    if is_zero.all():
        return 0
    is_zero[:1] = False
    return int(is_zero.argmax()) if is_zero.any() else len(is_zero)


def _is_batch(
    disk: FileSource, origin: Origin, position: int, base_offset: int, offset: int
) -> bool:
    """Return whether a batch begins at a position, and may be the one that an index entry names."""
    try:
        head = disk.read(origin.path, position, LENGTH_OVERHEAD_BYTES)
        if len(head) < LENGTH_OVERHEAD_BYTES:
            return False
        size = OFFSET_AND_SIZE.unpack_from(head)[1] + LENGTH_OVERHEAD_BYTES
        if not 0 < size <= min(BATCH_BYTES_MAX, origin.size - position):
            return False
        batch = open_batch(disk.read(origin.path, position, size))
    except (OSError, MalformedMessage):
        return False
    first = batch.base_offset if isinstance(batch, RecordBatch) else base_offset
    return base_offset <= first <= offset and batch.crc_is_valid()


class RangeReader:
    """Yields the batches of a range, and the problems between them."""

    def __init__(self, disk: FileSource, part: SegmentRange, *, with_crc: bool) -> None:
        self._disk = disk
        self._part = part
        self._with_crc = with_crc
        self._buffer = memoryview(b"")
        self._shift = 0
        self._index_positions: list[int] | None = None
        self.end_position = part.start

    def found(self) -> Iterator[FoundBatches | TablePiece]:
        """Yield runs of batches, and rows of `problems`. Raises OSError."""
        position, end = self._part.start, self._part.end
        while position < end:
            self._load(position, min(HEADER_SIZE_BYTES, end - position))
            run = self._run(position - self._shift)
            if not len(run) and self._shift < position:
                self._move(position, WINDOW_BYTES)
                run = self._run(0)
            if len(run):
                found = self._of(run)
                yield found
                position = self._shift + int(run[-1]) + int(found.headers["batch_length"][-1])
                position += LENGTH_OVERHEAD_BYTES
                continue
            batch, problem = self._single(position)
            if problem is not None:
                yield problem
            if batch is None:
                following = self._following(position)
                yield self._unreadable(position, following)
                position = following
                continue
            if isinstance(batch, OldMessage):
                yield FoundBatches(self._buffer, self._shift, *_NOTHING, None, batch)
            else:
                yield self._of(np.array([position - self._shift]))
            position += batch.size_bytes
        self.end_position = position

    def _load(self, position: int, size: int) -> None:
        """Have at least so many bytes from a position on in the buffer, unless the range ends."""
        size = min(size, self._part.end - position)
        if not self._shift <= position <= position + size <= self._shift + len(self._buffer):
            self._move(position, max(size, WINDOW_BYTES))

    def _move(self, position: int, size: int) -> None:
        wanted = min(size, self._part.end - position)
        content = self._disk.read(self._part.origin.path, position, wanted)
        self._buffer, self._shift = memoryview(content), position
        if len(content) < wanted:
            raise OSError(None, f"the file was truncated at byte {position + len(content)}")

    def _run(self, position: int) -> Longs:
        """Return the positions of whole batches of format 2 from a position of the buffer on."""
        buffer, positions = self._buffer, []
        last = len(buffer) - HEADER_SIZE_BYTES
        while position <= last:
            following = (
                position + LENGTH_OVERHEAD_BYTES + OFFSET_AND_SIZE.unpack_from(buffer, position)[1]
            )
            if (
                following < position + HEADER_SIZE_BYTES
                or following > len(buffer)
                or buffer[position + MAGIC_POSITION] != MAGIC
            ):
                break
            positions.append(position)
            position = following
        return np.array(positions, np.int64)

    def _of(self, positions: Longs) -> FoundBatches:
        content = np.frombuffer(self._buffer, np.uint8)
        headers = content[positions[:, None] + np.arange(HEADER_SIZE_BYTES)].view(HEADER)[:, 0]
        return FoundBatches(
            self._buffer, self._shift, positions, headers, self._checked(positions, headers)
        )

    def _checked(
        self, positions: Longs, headers: npt.NDArray[np.void]
    ) -> npt.NDArray[np.bool_] | None:
        if not self._with_crc:
            return None
        ends = positions + headers["batch_length"] + LENGTH_OVERHEAD_BYTES
        computed = checksums_of(self._buffer, zip(positions.tolist(), ends.tolist(), strict=True))
        is_valid: npt.NDArray[np.bool_] = np.array(computed, np.uint32) == headers["crc"]
        return is_valid

    def _single(self, position: int) -> tuple[AnyBatch | None, TablePiece | None]:
        """Return a batch that is larger than the buffer, or of an old format; None for bytes that
        are none.
        """
        left = self._part.end - position
        if left < LENGTH_OVERHEAD_BYTES:
            return None, None
        self._load(position, min(left, HEADER_SIZE_BYTES))
        size = OFFSET_AND_SIZE.unpack_from(self._buffer, position - self._shift)[1]
        size += LENGTH_OVERHEAD_BYTES
        if not 0 < size <= min(left, BATCH_BYTES_MAX):
            return None, None
        self._load(position, size)
        try:
            return open_batch(self._buffer, position - self._shift), None
        except MalformedMessage:
            return None, None

    def _unreadable(self, position: int, following: int) -> TablePiece:
        """Return the problem of bytes that are no batch, from a position to the next batch."""
        part = self._part
        is_end = following == part.end and part.is_last
        size = following - position
        self._load(position, min(size, HEADER_SIZE_BYTES))
        problem, reason = "malformed", ""
        visible = self._buffer[position - self._shift :]
        if self._is_zero(position, following):
            problem, reason = ("torn" if is_end else "malformed"), f"{size} bytes are zero"
        else:
            try:
                batch = open_batch(visible)
                reason = f"a batch of {batch.size_bytes} bytes where {size} are left"
            except TornBatch as torn:
                problem, reason = ("torn" if is_end else "malformed"), torn.reason
            except UnsupportedMagic as unsupported:
                problem, reason = "unsupported", f"message format {unsupported.magic}"
            except MalformedMessage as malformed:
                reason = malformed.reason
            if problem == "torn":
                announced = _announced(visible)
                if announced is not None and announced > size:
                    reason = f"{announced} bytes announced, {size} are there"
        return part.origin.problem(
            problem,
            reason,
            position=position,
            size=size,
            is_tail=is_end and part.is_newest,
        )

    def _is_zero(self, position: int, end: int) -> bool:
        while position < end:
            self._load(position, 1)
            piece = self._buffer[position - self._shift : end - self._shift]
            if np.frombuffer(piece, np.uint8).any():
                return False
            position += len(piece)
        return True

    def _following(self, position: int) -> int:
        """Return where the next batch begins after bytes that are none, or the end of the range."""
        end = self._part.end
        if end - position >= LENGTH_OVERHEAD_BYTES:
            self._load(position, LENGTH_OVERHEAD_BYTES)
            size = _announced(self._buffer[position - self._shift :]) or 0
            if size > LENGTH_OVERHEAD_BYTES and position + size < end:
                batch, _ = self._single(position + size)
                if batch is not None:
                    return position + size
        for each in self._indexed():
            if position < each < end:
                batch, _ = self._single(each)
                if batch is not None and batch.crc_is_valid():
                    return each
        return end

    def _indexed(self) -> list[int]:
        """Return the positions in the offset index."""
        if self._index_positions is None:
            index = self._part.index
            self._index_positions = (
                [] if index is None else index_entries(self._disk, index)["position"].tolist()
            )
        return self._index_positions


_NOTHING: Final = (np.zeros(0, np.int64), np.zeros(0, HEADER))


def _announced(content: memoryview) -> int | None:
    """Return the size of the batch that begins here, by its length field."""
    if len(content) < LENGTH_OVERHEAD_BYTES:
        return None
    return int(OFFSET_AND_SIZE.unpack_from(content)[1]) + LENGTH_OVERHEAD_BYTES


def batch_rows(
    part: SegmentRange, found: FoundBatches, *, with_rows: bool = True
) -> Generator[TablePiece, None, RangeEnds]:
    """Yield the rows of `batches`, and of `problems` for wrong checksums; return the ends."""
    if found.old is not None:
        return (yield from _old_row(part, found.old, found.shift))
    headers, positions = found.headers, found.positions + found.shift
    if with_rows:
        yield TablePiece("batches", _columns(part, found, positions))
    yield from _header_problems(part.origin, found, positions)
    sound = headers if found.crc_valid is None else headers[found.crc_valid]
    if not len(sound):
        return RangeEnds()
    last_offset = int(sound["base_offset"][-1]) + int(sound["last_offset_delta"][-1])
    return RangeEnds(int(sound["base_offset"][0]), last_offset + 1)


def _columns(part: SegmentRange, found: FoundBatches, positions: Longs) -> pa.RecordBatch:
    headers = found.headers
    count = len(headers)
    attributes = headers["attributes"].astype(np.int32)
    base_offset = headers["base_offset"].astype(np.int64)
    base_timestamp = headers["base_timestamp"].astype(np.int64)
    base_sequence = headers["base_sequence"].astype(np.int32)
    delta = headers["last_offset_delta"].astype(np.int32)
    has_horizon = attributes & DELETE_HORIZON_BIT != 0
    last_sequence = np.where(base_sequence == -1, -1, base_sequence + delta & LAST_SEQUENCE)
    kinds, epochs = _control_columns(found, attributes & CONTROL_BIT != 0)
    sizes = headers["batch_length"].astype(np.int64) + LENGTH_OVERHEAD_BYTES
    values = {
        "position": pa.array(positions),
        "size": pa.array(sizes),
        "base_offset": pa.array(base_offset),
        "last_offset": pa.array(base_offset + delta),
        "leader_epoch": pa.array(headers["leader_epoch"].astype(np.int32)),
        "magic": pa.array(headers["magic"].astype(np.int32)),
        "crc": pa.array(headers["crc"].astype(np.int64)),
        "crc_valid": pa.nulls(count, pa.bool_())
        if found.crc_valid is None
        else pa.array(found.crc_valid),
        "compression": CODECS.take(pa.array(attributes & COMPRESSION_MASK)),
        "timestamp_type": TIMESTAMP_TYPES.take(
            pa.array((attributes & LOG_APPEND_TIME_BIT != 0).astype(np.int8))
        ),
        "is_transactional": pa.array(attributes & TRANSACTIONAL_BIT != 0),
        "is_control": pa.array(attributes & CONTROL_BIT != 0),
        "first_ms": pa.array(base_timestamp, mask=has_horizon),
        "max_ms": pa.array(headers["max_timestamp"].astype(np.int64)),
        "delete_horizon_ms": pa.array(base_timestamp, mask=~has_horizon),
        "producer_id": pa.array(headers["producer_id"].astype(np.int64)),
        "producer_epoch": pa.array(headers["producer_epoch"].astype(np.int32)),
        "base_sequence": pa.array(base_sequence),
        "last_sequence": pa.array(last_sequence.astype(np.int32)),
        "records": pa.array(headers["record_count"].astype(np.int32)),
        "control_type": kinds,
        "coordinator_epoch": epochs,
        "segment_offset": pa.repeat(pa.scalar(part.base_offset, pa.int64()), count),
    }
    return record_batch("batches", part.origin, values, count)


def record_batch(
    table: str, origin: Origin, values: dict[str, pa.Array], count: int
) -> pa.RecordBatch:
    """Return rows of a table; the columns from log_dir to file come from the origin."""
    schema = TABLES[table].schema
    names = ("log_dir", "node_id", "directory", "topic", "partition", "file")
    fixed = {
        name: pa.repeat(pa.scalar(value, schema.field(name).type), count)
        for name, value in zip(names, origin.prefix, strict=True)
    }
    return pa.RecordBatch.from_arrays(
        [{**fixed, **values}[field.name] for field in schema], schema=schema
    )


def _control_columns(
    found: FoundBatches, is_control: npt.NDArray[np.bool_]
) -> tuple[pa.Array, pa.Array]:
    """Return type and coordinator epoch of each control batch; nulls for the others."""
    kinds = np.full(len(is_control), NO_CONTROL, np.int8)
    epochs = np.zeros(len(is_control), np.int32)
    is_marker = np.zeros(len(is_control), bool)
    numbers = np.flatnonzero(is_control)
    if len(numbers):
        is_common = _read_markers(found, numbers, kinds, epochs)
        is_marker[numbers[is_common]] = True
        for number in numbers[~is_common].tolist():
            kind, epoch = control_of(RecordBatch(found.buffer, int(found.positions[number])))
            if kind is not None:
                kinds[number] = ControlType[kind]
            if epoch is not None:
                epochs[number], is_marker[number] = epoch, True
    names = CONTROL_TYPES.take(pa.array(kinds.astype(np.int32)))
    return names, pa.array(epochs, mask=~is_marker)


def _read_markers(
    found: FoundBatches, numbers: Longs, kinds: npt.NDArray[np.int8], epochs: npt.NDArray[np.int32]
) -> npt.NDArray[np.bool_]:
    """Fill in types and epochs of the batches that are transaction markers as all releases write
    them; return which are.
    """
    headers = found.headers[numbers]
    content = np.frombuffer(found.buffer, np.uint8)
    starts = found.positions[numbers]
    ends = starts + headers["batch_length"] + LENGTH_OVERHEAD_BYTES
    is_one = (headers["record_count"] == 1) & (headers["attributes"] & COMPRESSION_MASK == 0)
    is_one &= ends - starts == MARKER_BATCH_BYTES
    is_common = np.zeros(len(numbers), bool)
    at = np.flatnonzero(is_one)
    walked = walk(content, starts[at] + HEADER_SIZE_BYTES, ends[at], np.ones(len(at), np.int64))
    keys = _bytes_at(content, walked.key_start, MARKER_KEY_BYTES)
    values = _bytes_at(content, walked.value_start, MARKER_VALUE_BYTES)
    is_marker = (walked.key_size == MARKER_KEY_BYTES) & (walked.value_size == MARKER_VALUE_BYTES)
    is_marker &= (keys[:, :3] == 0).all(axis=1) & (keys[:, 3] <= ControlType.COMMIT)
    is_marker &= (values[:, :2] == 0).all(axis=1)
    is_marker &= content[ends[at][walked.batch] - 1] == 0  # the count of headers
    which = at[walked.batch[is_marker]]
    is_common[which] = True
    kinds[numbers[which]] = keys[is_marker, 3]
    epochs[numbers[which]] = np.ascontiguousarray(values[is_marker, 2:]).view(">i4")[:, 0]
    return is_common


def _bytes_at(content: npt.NDArray[np.uint8], starts: Longs, size: int) -> npt.NDArray[np.uint8]:
    """Return some bytes from each start on; after the end, the last byte again."""
    places = np.minimum(starts[:, None] + np.arange(size), len(content) - 1)
    found: npt.NDArray[np.uint8] = content[places]
    return found


def control_of(batch: RecordBatch) -> tuple[str | None, int | None]:
    """Return the type of the first control record, and the coordinator epoch of a marker."""
    try:
        for record in batch.records():
            kind = control_type(record.key)
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                marker = parse_control_record(record.key, record.value)
                return kind.name, None if marker is None else marker.coordinator_epoch
            return None if kind is None else kind.name, None
    except MalformedMessage:
        pass
    return None, None


def _header_problems(origin: Origin, found: FoundBatches, positions: Longs) -> Iterator[TablePiece]:
    if found.crc_valid is not None:
        for number in np.flatnonzero(~found.crc_valid).tolist():
            yield origin.problem(
                "crc",
                "the checksum of the batch does not fit its bytes",
                position=int(positions[number]),
                size=int(found.headers["batch_length"][number]) + LENGTH_OVERHEAD_BYTES,
            )
    codecs = found.headers["attributes"] & COMPRESSION_MASK
    for number in np.flatnonzero(codecs >= len(Compression)).tolist():
        yield origin.problem(
            "unsupported",
            f"there is no codec {int(codecs[number])}",
            position=int(positions[number]),
            size=int(found.headers["batch_length"][number]) + LENGTH_OVERHEAD_BYTES,
        )


def _old_row(
    part: SegmentRange, message: OldMessage, shift: int
) -> Generator[TablePiece, None, RangeEnds]:
    """Yield the row of a message of format 0 or 1."""
    position = message.position + shift
    is_wrapper = bool(message.attributes & COMPRESSION_MASK)
    is_valid = message.crc_is_valid()
    base_offset: int | None = message.offset
    record_count: int | None = 1
    codec: str | None = None
    trouble = "" if is_valid else "the checksum of the message does not fit its bytes"
    try:
        codec = message.compression.name.lower()
        if is_wrapper and is_valid:
            offsets = [record.offset for record in message.records()]
            base_offset, record_count = offsets[0], len(offsets)
        elif is_wrapper:
            base_offset = record_count = None
    except MalformedMessage as malformed:
        base_offset = record_count = None
        yield part.origin.problem(
            "unsupported" if isinstance(malformed, UndecodableRecords) else "malformed",
            malformed.reason,
            position=position,
            size=message.size_bytes,
        )
    if trouble:
        yield part.origin.problem("crc", trouble, position=position, size=message.size_bytes)
    row = {
        "position": position,
        "size": message.size_bytes,
        "base_offset": base_offset,
        "last_offset": message.offset,
        "magic": message.magic,
        "crc": message.crc,
        "crc_valid": is_valid,
        "compression": codec,
        "timestamp_type": _timestamp_type(message.timestamp_type),
        "is_transactional": False,
        "is_control": False,
        "first_ms": message.timestamp if message.magic and not is_wrapper else None,
        "max_ms": message.timestamp if message.magic else None,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "last_sequence": -1,
        "records": record_count,
        "segment_offset": part.base_offset,
    }
    names = [column.name for column in TABLES["batches"].columns[len(part.origin.prefix) :]]
    yield TablePiece("batches", [(*part.origin.prefix, *(row.get(name) for name in names))])
    return RangeEnds(message.offset if base_offset is None else base_offset, message.offset + 1)


def _timestamp_type(kind: TimestampType | None) -> str | None:
    return None if kind is None else TIMESTAMP_TYPES[kind].as_py()


def joined(ends: Sequence[RangeEnds]) -> RangeEnds:
    """Return the ends of ranges together, in the order of the log."""
    firsts = [each.first_offset for each in ends if each.first_offset is not None]
    lasts = [each.end_offset for each in ends if each.end_offset is not None]
    return RangeEnds(firsts[0] if firsts else None, max(lasts) if lasts else None)


def last_offset_of(disk: FileSource, part: SegmentRange) -> int | None:
    """Return the offset after the last batch of a whole segment, None without one: read from the
    last entry of its index on.
    """
    start = 0
    if part.index is not None:
        entries = index_entries(disk, part.index)
        for entry in entries[:-4:-1]:
            position = int(entry["position"])
            offset = part.base_offset + int(entry["relative_offset"])
            if 0 < position < part.end and _is_batch(
                disk, part.origin, position, part.base_offset, offset
            ):
                start = position
                break
    end_offset: int | None = None
    for found in RangeReader(disk, replace(part, start=start), with_crc=False).found():
        if isinstance(found, FoundBatches):
            if found.old is not None:
                end_offset = found.old.next_offset
            else:
                last = found.headers[-1]
                end_offset = int(last["base_offset"]) + int(last["last_offset_delta"]) + 1
    return end_offset
