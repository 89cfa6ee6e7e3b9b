"""Rows on their way from a file to Arrow: small tables as tuples, large ones as Arrow batches."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from kraftsim.audit.tables import TABLES

Value: TypeAlias = int | str | bool | bytes | None
Row: TypeAlias = tuple[Value, ...]
ROWS_PER_GROUP: Final = 131_072
BYTES_PER_GROUP: Final = 32 << 20


class TablePiece(NamedTuple):
    """Some rows of a table: tuples in the order of its columns, or an Arrow batch."""

    table: str
    rows: "list[Row] | pa.RecordBatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The file that rows come from, and its size when it was listed; the first columns of a row."""

    log_dir: str
    node_id: int | None
    directory: str | None
    topic: str | None
    partition: int | None
    file: str
    size: int
    path: str
    """To open it; the names above are shown with all characters in UTF-8."""

    @property
    def prefix(self) -> Row:
        """The values of the columns from log_dir to file."""
        return (
            self.log_dir,
            self.node_id,
            self.directory,
            self.topic,
            self.partition,
            self.file,
        )

    def same_directory(self, other: "Origin") -> bool:
        """Return whether another file is in the same directory of a partition."""
        return self.directory == other.directory

    @property
    def of_directory(self) -> Row:
        """The values of the columns from log_dir to partition."""
        return self.prefix[:-1]

    def problem(
        self,
        problem: str,
        reason: str,
        *,
        position: int | None = None,
        size: int | None = None,
        is_tail: bool = False,
    ) -> TablePiece:
        """Return a row of `problems` about this file."""
        return TablePiece("problems", [(*self.prefix, position, size, problem, reason, is_tail)])


def arrow_of(piece: TablePiece) -> pa.RecordBatch:
    """Return a piece as an Arrow batch with the columns of its table."""
    if not isinstance(piece.rows, list):
        return piece.rows
    schema = TABLES[piece.table].schema
    columns = list(zip(*piece.rows, strict=True)) or [()] * len(schema)
    return pa.RecordBatch.from_arrays(
        [_array(column, field_.type) for column, field_ in zip(columns, schema, strict=True)],
        schema=schema,
    )


def _array(column: Sequence[Value], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(column, kind)
    except UnicodeEncodeError:
        return pa.array(
            [shown(value) if isinstance(value, str) else value for value in column], kind
        )


def shown(text: str) -> str:
    """Return a text that UTF-8 can hold: names of files and headers may have any bytes."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(slots=True)
class _Buffer:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0


class ParquetSink:
    """Writes pieces into `ROOT/TABLE/part-PART.parquet`, in row groups of bounded size."""

    def __init__(self, root: Path, part: int) -> None:
        self._root = root
        self._part = part
        self._waiting: dict[str, list[Row]] = {}
        self._buffers: dict[str, _Buffer] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}
        self.row_counts: dict[str, int] = {}

    def write(self, pieces: Iterator[TablePiece]) -> None:
        """Take over all pieces."""
        for piece in pieces:
            if isinstance(piece.rows, list):
                waiting = self._waiting.setdefault(piece.table, [])
                waiting += piece.rows
                if len(waiting) >= ROWS_PER_GROUP // 8:
                    self._settle(piece.table)
            else:
                self._add(piece.table, piece.rows)

    def close(self) -> dict[str, int]:
        """Write what is left; return the number of rows of each table."""
        for table in list(self._waiting):
            self._settle(table)
        for table in list(self._buffers):
            self._flush(table)
        for writer in self._writers.values():
            writer.close()
        return self.row_counts

    def _settle(self, table: str) -> None:
        rows = self._waiting.pop(table)
        if rows:
            self._add(table, arrow_of(TablePiece(table, rows)))

    def _add(self, table: str, batch: pa.RecordBatch) -> None:
        buffer = self._buffers.setdefault(table, _Buffer())
        buffer.batches.append(batch)
        buffer.rows += batch.num_rows
        buffer.size += batch.nbytes
        if buffer.rows >= ROWS_PER_GROUP or buffer.size >= BYTES_PER_GROUP:
            self._flush(table)

    def _flush(self, table: str) -> None:
        buffer = self._buffers.pop(table)
        schema = TABLES[table].schema
        if table not in self._writers:
            directory = self._root / table
            directory.mkdir(parents=True, exist_ok=True)
            # a dictionary of offsets, times or values costs time, and is given up: they differ
            self._writers[table] = pq.ParquetWriter(
                directory / f"part-{self._part}.parquet",
                schema,
                compression="zstd",
                use_dictionary=[
                    column.name
                    for column in TABLES[table].columns
                    if column.type not in ("long", "bytes")
                ],
            )
        rows = pa.Table.from_batches(buffer.batches, schema)
        self._writers[table].write_table(rows, row_group_size=ROWS_PER_GROUP)
        self.row_counts[table] = self.row_counts.get(table, 0) + rows.num_rows


def rows_of(pieces: Iterable[TablePiece], table: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one table as Arrow batches."""
    for piece in pieces:
        if piece.table == table:
            yield arrow_of(piece)
