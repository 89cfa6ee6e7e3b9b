"""The streaming source `kraftsim-events`: the event logs of a run while nodes append to them.

Spark's own source of text files reads a file once; it does not see lines that are appended later.
An offset of this source is a byte position per file, always after a line feed. A last line without
line feed stays for a later batch. Each batch takes the oldest lines first, up to a number of bytes,
so that all files advance to about the same time and a long backlog needs little memory.

Options: `path` (the run), `kinds` (comma-separated: the kinds whose lines the caller wants; other
rows have only their envelope), `batchBytes`, `partitions`.
"""

import heapq
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

EVENTS_DIRECTORY: Final = "events"
SOURCE_NAME: Final = "kraftsim-events"
BATCH_BYTES: Final = 16 * 1024 * 1024
CHUNK_BYTES: Final = 256 * 1024
"""A batch takes so much of a file before it looks which file is behind."""
HEAD_BYTES: Final = 4 * 1024
TAIL_BYTES_MAX: Final = 64 * 1024
COLUMNS: Final = (
    "file string, node string, incarnation bigint, n bigint, t_ns bigint, kind string, "
    "end bigint, line binary"
)
"""`end` is the position after the line. `kind` is null for a line that is no event; `line` is null
for an event of a kind that the caller does not want, and empty for an empty line.
"""
ROWS: Final = pa.schema(
    [
        pa.field("file", pa.string()),
        pa.field("node", pa.string()),
        pa.field("incarnation", pa.int64()),
        pa.field("n", pa.int64()),
        pa.field("t_ns", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("end", pa.int64()),
        pa.field("line", pa.binary()),
    ]
)
_T_NS: Final = re.compile(rb'"t_ns": ?(\d+)')
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class LineEnvelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The part of a line that every event has."""

    node: str
    incarnation: Int64
    n: Int64
    t_ns: Int64
    kind: str


class Extent(NamedTuple):
    """Whole lines of one file, by the positions of their first byte and of the byte after them."""

    file: str
    start: int
    end: int


class LogRow(NamedTuple):
    """One line, as in COLUMNS."""

    file: str
    node: str | None
    incarnation: int | None
    n: int | None
    t_ns: int | None
    kind: str | None
    end: int
    line: bytes | None


_decode = msgspec.json.Decoder(LineEnvelope).decode


def decode_envelope(line: bytes) -> LineEnvelope | None:
    """Return the envelope of a line; None if it is no event."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# --------------------------------------------------------------------------------------------------
# The files


def log_sizes(run: Path) -> dict[str, int]:
    """Return the size of each event log by its path below RUN, sorted."""
    sizes = {}
    for path in sorted((run / EVENTS_DIRECTORY).rglob("*.jsonl")):
        try:
            sizes[path.relative_to(run).as_posix()] = path.stat().st_size
        except FileNotFoundError:
            continue
    return sizes


def readable_sizes(run: Path, positions: Mapping[str, int]) -> dict[str, int]:
    """Return for each log how far a reader at these positions can read now: up to its size, or its
    own position if only a part of a line follows.
    """
    sizes = log_sizes(run)
    for file, size in sizes.items():
        position = positions.get(file, 0)
        if 0 < size - position <= TAIL_BYTES_MAX and b"\n" not in _bytes(
            run, Extent(file, position, size)
        ):
            sizes[file] = position
    return sizes


def next_positions(
    run: Path, positions: Mapping[str, int], batch_bytes: int = BATCH_BYTES
) -> dict[str, int]:
    """Return the positions up to which the next batch reads."""
    ends = dict(positions)
    heap = []
    for file, size in log_sizes(run).items():
        position = ends.setdefault(file, 0)
        if size > position:
            heap.append((_head_time(run, file, position), file, size))
    heapq.heapify(heap)
    left = batch_bytes
    while heap and left > 0:
        _, file, size = heapq.heappop(heap)
        start = ends[file]
        end = _line_end(run, file, start, size)
        left -= end - start
        ends[file] = end
        if start < end < size:
            heapq.heappush(heap, (_head_time(run, file, end), file, size))
    return ends


def extents(start: Mapping[str, int], end: Mapping[str, int]) -> list[Extent]:
    """Return what lies between two offsets."""
    return [
        Extent(file, start.get(file, 0), position)
        for file, position in sorted(end.items())
        if position > start.get(file, 0)
    ]


def rows_of(run: Path, extent: Extent, kinds: frozenset[str]) -> Iterator[LogRow]:
    """Yield the lines of an extent; those of other kinds without their text."""
    position = extent.start
    file = extent.file
    for line in _lines(run, extent):
        position += len(line)
        content = line.strip()
        envelope = decode_envelope(content) if content else None
        if envelope is None:
            yield LogRow(file, None, None, None, None, None, position, content)
        else:
            yield LogRow(
                file,
                envelope.node,
                envelope.incarnation,
                envelope.n,
                envelope.t_ns,
                envelope.kind,
                position,
                content if envelope.kind in kinds else None,
            )


def torn_tail(run: Path, file: str, position: int) -> bytes:
    """Return what follows a position of a file that no writer appends to any more."""
    try:
        with (run / file).open("rb") as log:
            log.seek(position)
            return log.read()
    except FileNotFoundError:
        return b""


def _lines(run: Path, extent: Extent) -> list[bytes]:
    """Return the lines with their line feeds, which alone end a line."""
    content = _bytes(run, extent)
    return [line + b"\n" for line in content.split(b"\n")[:-1]]


def _bytes(run: Path, extent: Extent) -> bytes:
    try:
        with (run / extent.file).open("rb") as log:
            log.seek(extent.start)
            return log.read(extent.end - extent.start)
    except FileNotFoundError:
        return b""


def _head_time(run: Path, file: str, position: int) -> int:
    found = _T_NS.search(_bytes(run, Extent(file, position, position + HEAD_BYTES)))
    return int(found[1]) if found else -1


def _line_end(run: Path, file: str, start: int, size: int) -> int:
    """Return the end of the last line that ends within a chunk, or of a longer first line; `start`
    if there is none.
    """
    place = start
    while place < size:
        chunk = _bytes(run, Extent(file, place, min(size, place + CHUNK_BYTES)))
        if not chunk:
            break
        last = chunk.rfind(b"\n") if place == start else chunk.find(b"\n")
        if last >= 0:
            return place + last + 1
        place += len(chunk)
    return start


# --------------------------------------------------------------------------------------------------
# The source as Spark knows it


class Extents(InputPartition):
    """What one task reads."""

    def __init__(self, parts: Sequence[Extent]) -> None:
        super().__init__([tuple(part) for part in parts])


class EventLogReader(DataSourceStreamReader):
    """Reads the logs of one run."""

    def __init__(
        self, run: Path, kinds: frozenset[str], batch_bytes: int, partition_count: int
    ) -> None:
        self._run = run
        self._kinds = kinds
        self._batch_bytes = batch_bytes
        self._partition_count = partition_count

    def initialOffset(self) -> dict[str, int]:
        """Return the beginning of all files."""
        return {}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the end of the next batch."""
        return next_positions(self._run, start, self._batch_bytes)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return few tasks of similar size: a task costs more than the lines of a quiet node."""
        loads = [0] * self._partition_count
        parts: list[list[Extent]] = [[] for _ in loads]
        for extent in sorted(extents(start, end), key=lambda each: each.start - each.end):
            least = loads.index(min(loads))
            loads[least] += extent.end - extent.start
            parts[least].append(extent)
        return [Extents(part) for part in parts if part]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        for part in partition.value:
            rows = list(rows_of(self._run, Extent(*part), self._kinds))
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(ROWS)
            yield pa.record_batch(
                [pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)],
                schema=ROWS,
            )


class EventLogSource(DataSource):
    """The event logs of a run, as a source of Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return SOURCE_NAME

    def schema(self) -> str:
        """Return the columns."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader that the options describe."""
        kinds = self.options.get("kinds", "")
        return EventLogReader(
            Path(self.options["path"]),
            frozenset(kinds.split(",")) if kinds else frozenset(),
            int(self.options.get("batchBytes", BATCH_BYTES)),
            int(self.options.get("partitions", 2)),
        )
