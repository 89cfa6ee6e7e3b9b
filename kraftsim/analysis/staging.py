"""Parsed pieces of event logs on their way from the workers that parse to the one that sorts.

A worker parses one chunk and leaves its pieces as Arrow streams in one file; what it returns is a
small index: where each piece lies, how many rows it has, and samples of its keys, from which the
slices of a large run are cut.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from kraftsim.analysis.places import LocalPlace, Place, place_of
from kraftsim.analysis.reading import Chunk, EventPiece, read_chunk

SAMPLE_ROWS: Final = 4096
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class Staged(msgspec.Struct, frozen=True, array_like=True):
    """A piece in a staging file.

    `samples` are time and line number of every 4096th row, the first included; `last_t_ns` is the
    time of the last row.
    """

    path: str
    begin: int
    size_bytes: int
    node: str
    incarnation: int
    kind: str
    rows: int
    samples: tuple[tuple[int, int], ...]
    last_t_ns: int


class IncarnationLines(msgspec.Struct, frozen=True, array_like=True):
    """The line numbers of one incarnation of a node in a chunk: ranges (first, last) of those that
    occur, and how many occur again.
    """

    node: str
    incarnation: int
    ranges: tuple[tuple[int, int], ...]
    repeated: int


class ParsedChunk(msgspec.Struct, frozen=True):
    """What a worker returns for a chunk."""

    source: str
    staged: tuple[Staged, ...]
    lines: tuple[IncarnationLines, ...]
    torn_bytes: int
    unreadable_lines: int


def parse_into(chunk: Chunk, to: Place) -> ParsedChunk:
    """Parse a chunk and leave its pieces in a file."""
    content = read_chunk(chunk)
    staged = []
    if content.pieces:
        with to.create() as file:
            for piece in content.pieces:
                begin = file.tell()
                with pa.ipc.new_stream(file, piece.table.schema, options=_OPTIONS) as writer:
                    writer.write_table(piece.table)
                staged.append(_staged(piece, str(to), begin, file.tell() - begin))
    return ParsedChunk(
        source=chunk.path,
        staged=tuple(staged),
        lines=lines_of(content.pieces),
        torn_bytes=content.torn_bytes,
        unreadable_lines=content.unreadable_lines,
    )


def _staged(piece: EventPiece, path: str, begin: int, size_bytes: int) -> Staged:
    samples, last_t_ns = samples_of(piece)
    return Staged(
        path,
        begin,
        size_bytes,
        piece.node,
        piece.incarnation,
        piece.kind,
        piece.table.num_rows,
        samples,
        last_t_ns,
    )


def samples_of(piece: EventPiece) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return the samples of a piece, and the time of its last row."""
    t_ns = piece.table.column("t_ns").to_numpy()
    n = piece.table.column("n").to_numpy()
    samples = zip(t_ns[::SAMPLE_ROWS].tolist(), n[::SAMPLE_ROWS].tolist(), strict=True)
    return tuple(samples), int(t_ns[-1])


def load(staged: Staged) -> EventPiece:
    """Return a staged piece."""
    place = place_of(staged.path)
    is_here = isinstance(place, LocalPlace)
    with pa.memory_map(str(place)) if is_here else pa.PythonFile(place.open()) as file:
        file.seek(staged.begin)
        table = pa.ipc.open_stream(file.read_buffer(staged.size_bytes)).read_all()
    return EventPiece(staged.node, staged.incarnation, staged.kind, table.combine_chunks())


def lines_of(pieces: Sequence[EventPiece]) -> tuple[IncarnationLines, ...]:
    """Return the line numbers of each incarnation in the pieces of a chunk."""
    numbers: dict[tuple[str, int], list[np.ndarray]] = {}
    for piece in pieces:
        numbers.setdefault((piece.node, piece.incarnation), []).append(
            piece.table.column("n").to_numpy()
        )
    found = []
    for (node, incarnation), parts in sorted(numbers.items()):
        every = np.sort(np.concatenate(parts), kind="stable")
        distinct = every[np.concatenate(([True], every[1:] != every[:-1]))]
        ends = np.flatnonzero(np.diff(distinct) != 1)
        firsts = distinct[np.concatenate(([0], ends + 1))]
        lasts = distinct[np.concatenate((ends, [len(distinct) - 1]))]
        ranges = tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))
        found.append(IncarnationLines(node, incarnation, ranges, len(every) - len(distinct)))
    return tuple(found)
