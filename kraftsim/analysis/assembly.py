"""Puts the pieces of a run into the order of time, derives causes and clocks, and writes the files
of its dataset.

A large run is assembled in slices of about a million events. A slice ends at a key (time, node,
incarnation, line number), so that every event is in exactly one slice even where millions have the
same time. Only the pieces that a slice overlaps are in memory; what one slice leaves to the next is
in `CauseTracker`.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from kraftsim.analysis.causes import NO_CAUSE, CauseTracker, KindRows
from kraftsim.analysis.columns import (
    CAUSE_POSITION,
    LAMPORT,
    POSITION,
    family_of_kind,
    family_schema,
)
from kraftsim.analysis.dataset import DATA_SUFFIX, DataFile, fresh_name
from kraftsim.analysis.places import Place, one_line
from kraftsim.analysis.reading import EventPiece
from kraftsim.analysis.staging import SAMPLE_ROWS

SLICE_ROWS: Final = 1 << 20
ROW_GROUP_ROWS: Final = 256 * 1024
WRITERS: Final = 2
"""Threads that write files while the next slice is sorted."""
Integers = npt.NDArray[np.int64]


class Key(NamedTuple):
    """The place of an event in the order of time of its run."""

    t_ns: int
    node: str
    incarnation: int
    n: int


class PieceSource(NamedTuple):
    """A piece that is loaded when its first slice begins."""

    node: str
    incarnation: int
    kind: str
    rows: int
    samples: Sequence[tuple[int, int]]
    last_t_ns: int
    load: Callable[[], EventPiece]


class Assembled(NamedTuple):
    """The result of assembling a run."""

    files: tuple[DataFile, ...]
    kinds: dict[str, int]
    nodes: int
    events: int
    frames_paired: int


def assemble(
    sources: Sequence[PieceSource],
    run: str,
    root: Place,
    directory: str,
    *,
    slice_rows: int | None = None,
    report: Callable[[int], None] = lambda events: None,
) -> Assembled:
    """Write the files of a run below a directory of the dataset, under new names. `report` gets the
    number of events of each finished slice.
    """
    name = fresh_name()
    nodes = {name: code for code, name in enumerate(sorted({each.node for each in sources}))}
    tracker = CauseTracker()
    kinds: dict[str, int] = {}
    files: list[DataFile] = []
    base = 0
    with ThreadPoolExecutor(WRITERS) as writers:
        pending: list[Future[DataFile]] = []
        for number, parts in enumerate(_slices(sources, slice_rows or SLICE_ROWS)):
            slice_ = _Ordered(parts, nodes)
            causes = tracker.derive(slice_.kinds, slice_.node, base)
            files += [each.result() for each in pending]  # at most one slice is being written
            positions = np.arange(base, base + slice_.events)
            derived = _Derived(positions, causes.cause, causes.lamport)
            part = f"part-{number:05}-{name}{DATA_SUFFIX}"
            pending = [
                writers.submit(
                    _write, own, derived, run, root, f"{directory}/family={family}/{part}"
                )
                for family, own in slice_.by_family().items()
            ]
            for kind, rows in slice_.kinds.items():
                kinds[kind] = kinds.get(kind, 0) + len(rows.place)
            base += slice_.events
            report(slice_.events)
        files += [each.result() for each in pending]
    return Assembled(
        tuple(sorted(files, key=lambda file: file.path)),
        dict(sorted(kinds.items())),
        len(nodes),
        base,
        tracker.frames_paired,
    )


class _Part(NamedTuple):
    """Consecutive rows of a piece."""

    node: str
    incarnation: int
    kind: str
    table: pa.Table


class _OpenPiece:
    """A loaded piece, of which some rows are in former slices."""

    def __init__(self, piece: EventPiece) -> None:
        self.piece = piece
        self.rows = piece.table.num_rows
        self.taken = 0
        self._t_ns, self._n = (_numbers(piece.table, name) for name in ("t_ns", "n"))

    def take(self, end: Key | None) -> _Part | None:
        """Return the next rows up to a key, or None if there are none."""
        begin, self.taken = self.taken, self.rows if end is None else self._rows_before(end)
        if self.taken == begin:
            return None
        node, incarnation, kind, table = self.piece
        return _Part(node, incarnation, kind, table.slice(begin, self.taken - begin))

    def _rows_before(self, end: Key) -> int:
        """Return how many rows precede a key."""
        first = int(np.searchsorted(self._t_ns, end.t_ns, "left"))
        last = int(np.searchsorted(self._t_ns, end.t_ns, "right"))
        own, bound = (self.piece.node, self.piece.incarnation), (end.node, end.incarnation)
        if own != bound:
            return last if own < bound else first
        return first + int(np.searchsorted(self._n[first:last], end.n, "left"))


def _numbers(table: pa.Table, name: str) -> Integers:
    """Return a column of a table of one chunk, without copying it."""
    column = table.column(name)
    return np.asarray(column.chunk(0) if column.num_chunks == 1 else column, np.int64)


def _slices(sources: Sequence[PieceSource], slice_rows: int) -> Iterator[list[_Part]]:
    """Yield the parts of each slice, in the order of time.

    A piece is loaded when its first row is in a slice, and not when its time is: the final logs,
    a quarter of a run, have one time.
    """
    waiting = sorted(sources, key=_first_key, reverse=True)
    open_: list[_OpenPiece] = []
    for end in (*_ends(sources, slice_rows), None):
        while waiting and (end is None or _first_key(waiting[-1]) < end):
            open_.append(_OpenPiece(waiting.pop().load()))
        parts = [part for each in open_ if (part := each.take(end)) is not None]
        open_ = [each for each in open_ if each.taken < each.rows]
        if parts:
            yield parts


def _first_key(source: PieceSource) -> Key:
    t_ns, n = source.samples[0]
    return Key(t_ns, source.node, source.incarnation, n)


def _ends(sources: Sequence[PieceSource], slice_rows: int) -> list[Key]:
    """Return the keys at which slices end: between two of them are about `slice_rows` events."""
    if sum(each.rows for each in sources) <= slice_rows:
        return []
    keys = sorted(
        (
            Key(t_ns, each.node, each.incarnation, n),
            min(SAMPLE_ROWS, each.rows - SAMPLE_ROWS * place),
        )
        for each in sources
        for place, (t_ns, n) in enumerate(each.samples)
    )
    ends, rows = [], 0
    for key, own in keys:
        if rows >= slice_rows:
            ends.append(key)
            rows = 0
        rows += own
    return ends


class _Ordered:
    """The events of a slice in the order of time.

    `node` has the code of each event's node; `kinds` the events of each kind in that order.
    """

    def __init__(self, parts: Sequence[_Part], nodes: dict[str, int]) -> None:
        parts = sorted(parts, key=lambda part: (part.node, part.incarnation))
        index = _index_of(parts)
        self.events = len(index)
        self.node = np.empty(self.events, np.int64)
        self.kinds: dict[str, KindRows] = {}
        by_kind: dict[str, list[tuple[pa.Table, Integers]]] = {}
        begin = 0
        for part in parts:
            own = index[begin : begin + part.table.num_rows]
            begin += part.table.num_rows
            self.node[own] = nodes[part.node]
            table = part.table.append_column(
                "node", pa.repeat(part.node, part.table.num_rows)
            ).append_column(
                "incarnation", pa.repeat(pa.scalar(part.incarnation, pa.int64()), len(own))
            )
            by_kind.setdefault(part.kind, []).append((table, own))
        for kind, found in sorted(by_kind.items()):
            place = np.concatenate([own for _, own in found])
            table = pa.concat_tables([table for table, _ in found])
            if len(found) > 1:
                order = np.argsort(place, kind="stable")
                place, table = place[order], table.take(pa.array(order))
            self.kinds[kind] = KindRows(table.combine_chunks(), place)

    def by_family(self) -> dict[str, dict[str, KindRows]]:
        """Return the events by family and kind."""
        families: dict[str, dict[str, KindRows]] = {}
        for kind, rows in self.kinds.items():
            families.setdefault(family_of_kind(kind), {})[kind] = rows
        return families


def _index_of(parts: Sequence[_Part]) -> Integers:
    """Return for each row of the parts, which are sorted by node and incarnation, its place in the
    order of time.

    The lines of an incarnation are numbered in the order of time, so sorting by number puts its
    kinds together; a stable sort by time does the rest.
    """
    times, orders, begin, first = [], [], 0, 0
    while first < len(parts):
        after = first
        while after < len(parts) and _incarnation(parts[after]) == _incarnation(parts[first]):
            after += 1
        t_ns = np.concatenate([part.table.column("t_ns").to_numpy() for part in parts[first:after]])
        n = np.concatenate([part.table.column("n").to_numpy() for part in parts[first:after]])
        order = np.argsort(n, kind="stable")
        ordered = t_ns[order]
        if (ordered[1:] < ordered[:-1]).any():
            order = np.lexsort((n, t_ns))
            ordered = t_ns[order]
        times.append(ordered)
        orders.append(order + begin)
        begin += len(t_ns)
        first = after
    by_incarnation = np.concatenate(orders)
    by_time = by_incarnation[np.argsort(np.concatenate(times), kind="stable")]
    index = np.empty(len(by_time), np.int64)
    index[by_time] = np.arange(len(by_time))
    return index


def _incarnation(part: _Part) -> tuple[str, int]:
    return part.node, part.incarnation


class _Derived(NamedTuple):
    """The derived columns of a slice, in the order of time."""

    position: Integers
    cause: Integers
    lamport: Integers


def _write(
    kinds: dict[str, KindRows], derived: _Derived, run: str, root: Place, path: str
) -> DataFile:
    """Write the events of one family of a slice."""
    family = family_of_kind(next(iter(kinds)))
    schema = family_schema(family)
    place = root / path
    rows = 0
    with write_parquet(place, schema) as writer:
        for kind, (table, index) in kinds.items():
            columns = _columns(schema, kind, table, index, derived, run)
            writer.write(pa.table(columns, schema=schema))
            rows += table.num_rows
    return DataFile(
        path=path,
        family=family,
        rows=rows,
        size_bytes=writer.size_bytes,
        kinds=tuple(kinds),
        file_rows=rows,
    )


class ParquetFile:
    """A data file that is being written. `size_bytes` is known when it is complete."""

    def __init__(self, place: Place, schema: pa.Schema) -> None:
        self._place = place
        self._file = place.create()
        self._writer = pq.ParquetWriter(self._file, schema, compression="zstd")
        self.size_bytes = 0

    def write(self, table: pa.Table) -> None:
        """Write rows, as row groups of their own."""
        with one_line(self._place):
            self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)

    def close(self) -> None:
        """Complete the file."""
        with one_line(self._place):
            self._writer.close()
            self.size_bytes = self._file.tell()
            self._file.close()


@contextmanager
def write_parquet(place: Place, schema: pa.Schema) -> Iterator[ParquetFile]:
    """Yield a data file to write; it is complete if the block ends without an error."""
    file = ParquetFile(place, schema)
    yield file
    file.close()


def _columns(
    schema: pa.Schema, kind: str, table: pa.Table, index: Integers, derived: _Derived, run: str
) -> list[pa.Array | pa.ChunkedArray]:
    cause = derived.cause[index]
    made = {
        "run": pa.repeat(run, len(index)),
        "kind": pa.repeat(kind, len(index)),
        POSITION: pa.array(derived.position[index]),
        CAUSE_POSITION: pa.array(cause, mask=cause == NO_CAUSE),
        LAMPORT: pa.array(derived.lamport[index]),
    }
    there = set(table.column_names)
    return [
        made[field.name]
        if field.name in made
        else table.column(field.name)
        if field.name in there
        else pa.nulls(len(index), field.type)
        for field in schema
    ]
