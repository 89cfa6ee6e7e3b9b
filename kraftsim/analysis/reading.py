"""Reads pieces of event log files, JSON lines, into columns: one narrow table per node, incarnation
and kind.

A file is cut into chunks of bytes at line feeds, so that a large file is read by several workers
and no worker holds more than a chunk. Lines as nodes write them are grouped by their kind first:
then Arrow parses tables of a dozen columns, not of all columns of all kinds. Lines that Arrow
rejects, because one is no event or a field has an unexpected type, are read one by one. A last line
without line feed is the result of kill -9: it is dropped and counted, and is never an error.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kraftsim.analysis.columns import ENVELOPE_COLUMNS, EXTRA, NEVER_NULL, columns_of
from kraftsim.analysis.places import Where, place_of

CHUNK_BYTES: Final = 32 * 1024 * 1024
"""The size of a chunk of a large file; a line belongs to the chunk in which it begins."""
BLOCK_BYTES: Final = 4 * 1024 * 1024
"""Arrow parses in blocks of this size; a longer line is read by itself."""
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A longer line is no event: it is counted and skipped, and never held in memory."""
DEPTH_MAX: Final = 500
"""Arrow's parser aborts the process on a line with much deeper nesting; events are flat."""
INT64: Final = range(-(1 << 63), 1 << 63)

_PREFIX: Final = re.compile(
    rb'\{"run":"(?:[^"\\]|\\.)*","node":"(?:[^"\\]|\\.)*","incarnation":\d+,'
)
"""How a line of `kraftsim.events.event.LineEncoder` begins."""
_KIND: Final = b'"kind":"'
_QUOTES_BEFORE_KIND: Final = 6
"""Those of the names n, t_ns and wall_ms: with more, a text precedes the kind."""
_PYTHON_TYPES: Final = {pa.int64(): int, pa.string(): str, pa.bool_(): bool}
_FROM_KEY: Final = ("run", "node", "incarnation", "kind")
"""Columns that a piece has once, for all its rows."""
_encode_extra = msgspec.json.Encoder(order="sorted").encode


class Chunk(NamedTuple):
    """Bytes `begin` to `end` of a file, by its address; `is_last` if the file ended there when it
    was looked at.
    """

    path: str
    begin: int
    end: int
    is_last: bool


class EventPiece(NamedTuple):
    """Events of one kind of one incarnation of a node, sorted by time and line number.

    The table has `n`, `t_ns`, `wall_ms`, the fields of the kind, and `extra`.
    """

    node: str
    incarnation: int
    kind: str
    table: pa.Table


class ChunkContent(NamedTuple):
    """The events of a chunk, and what could not be read of it."""

    pieces: tuple[EventPiece, ...]
    torn_bytes: int = 0
    unreadable_lines: int = 0


def chunks_of(file: Where, size_bytes: int | None = None) -> Iterator[Chunk]:
    """Yield the chunks of a file, at least one."""
    end = place_of(file).size_bytes if size_bytes is None else size_bytes
    for begin in range(0, max(end, 1), CHUNK_BYTES):
        last = begin + CHUNK_BYTES >= end
        yield Chunk(str(file), begin, end if last else begin + CHUNK_BYTES, last)


def read_chunk(chunk: Chunk) -> ChunkContent:
    """Return the events whose lines begin in a chunk.

    Raises OSError if the file cannot be read.
    """
    data, unreadable_lines = _bytes_of(chunk)
    torn_bytes = 0
    tail = b"" if data.endswith(b"\n") else data[data.rfind(b"\n") + 1 :]
    if tail and _decode(tail) is None:
        torn_bytes = len(tail)
        data = data[:-torn_bytes]
    content = read_lines(data)
    return content._replace(
        torn_bytes=torn_bytes, unreadable_lines=content.unreadable_lines + unreadable_lines
    )


def _bytes_of(chunk: Chunk) -> tuple[bytes, int]:
    """Return the lines that begin in a chunk, and how many were too long to be read. The last line
    has no line feed if the file ends there.
    """
    with place_of(chunk.path).open() as file:
        begin = chunk.begin
        if begin:
            file.seek(begin - 1)  # a line that begins exactly here belongs to this chunk
            begin += _skip_line(file.readline, chunk.end - begin + 1) - 1
        if begin >= chunk.end:
            return b"", 0
        file.seek(begin)
        data = file.read(chunk.end - begin)
        if chunk.is_last or data.endswith(b"\n"):
            return data, 0
        rest = file.readline(LINE_BYTES_MAX)
        if rest.endswith(b"\n") or len(rest) < LINE_BYTES_MAX:
            return data + rest, 0
        return data[: data.rfind(b"\n") + 1], 1


def _skip_line(readline: Callable[[int], bytes], at_most: int) -> int:
    """Return the number of bytes up to the end of a line, or some number above `at_most`."""
    skipped = 0
    while skipped <= at_most:
        part = readline(BLOCK_BYTES)
        skipped += len(part)
        if not part or part.endswith(b"\n"):
            break
    return skipped


def read_lines(data: bytes) -> ChunkContent:
    """Return the events of whole lines; lines that are no events are counted."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    if not lines:
        return ChunkContent(())
    grouped = None if _is_nested_deeply(data, lines) else _grouped(data, lines)
    if grouped is None:
        return _read_one_by_one(lines)
    node, incarnation, by_kind = grouped
    pieces: list[EventPiece] = []
    unreadable_lines = 0
    for kind, own in sorted(by_kind.items()):
        table = _parse(kind, own)
        if table is None:
            content = _read_one_by_one(own)
            pieces += content.pieces
            unreadable_lines += content.unreadable_lines
        else:
            pieces.append(EventPiece(node, incarnation, kind, _sorted(table)))
    return ChunkContent(tuple(pieces), 0, unreadable_lines)


def _is_nested_deeply(data: bytes, lines: Sequence[bytes]) -> bool:
    """Return whether a line has so many opening brackets that it may be nested too deeply for
    Arrow.
    """
    if data.count(b"{") + data.count(b"[") - len(lines) <= DEPTH_MAX:
        return False
    return any(line.count(b"{") + line.count(b"[") > DEPTH_MAX for line in lines)


def _grouped(
    data: bytes, lines: Sequence[bytes]
) -> tuple[str, int, Mapping[str, list[bytes]]] | None:
    """Return node, incarnation and the lines of each kind, or None if a line is not one that a node
    of kraftsim writes.

    A line feed never occurs inside a JSON text, so a prefix that follows one is the envelope.
    """
    begin = _PREFIX.match(lines[0])
    if begin is None:
        return None
    prefix = begin[0]
    if data.count(b"\n" + prefix) + data.startswith(prefix) != len(lines):
        return None
    by_kind: dict[bytes, list[bytes]] = {}
    skipped = len(prefix)
    for line in lines:
        place = line.find(_KIND, skipped)
        if place < 0 or line.count(b'"', skipped, place) != _QUOTES_BEFORE_KIND:
            return None
        first = place + len(_KIND)
        kind = line[first : line.find(b'"', first)]
        try:
            by_kind[kind].append(line)
        except KeyError:
            by_kind[kind] = [line]
    try:
        envelope = msgspec.json.decode(prefix[:-1] + b"}")
        return (
            envelope["node"],
            envelope["incarnation"],
            {kind.decode("ascii"): own for kind, own in by_kind.items()},
        )
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _parse(kind: str, lines: Sequence[bytes]) -> pa.Table | None:
    """Return the lines of one kind and one envelope as a table, or None if one must be read by
    itself.
    """
    schema = columns_of(kind)
    prefix = _PREFIX.match(lines[0])
    assert prefix is not None, "only such lines are grouped"
    stripped = len(prefix[0])
    data = b"{" + b"\n{".join(line[stripped:] for line in lines)
    wanted = schema.append(pa.field("kind", pa.string()))
    try:
        parsed = pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(
                use_threads=False, block_size=min(BLOCK_BYTES, len(data) + 1)
            ),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=wanted, unexpected_field_behavior="infer"
            ),
        )
        unknown = [name for name in parsed.column_names if name not in wanted.names]
        if parsed.num_rows != len(lines) or any(
            parsed.column(name).null_count for name in ("n", "t_ns", "kind")
        ):
            return None
        if pc.any(pc.not_equal(parsed.column("kind"), kind)).as_py() or any(
            name in ENVELOPE_COLUMNS for name in unknown
        ):
            return None
        extra = _extra_of(parsed, unknown, lines) if unknown else pa.nulls(len(lines), pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, msgspec.DecodeError, RecursionError):
        return None
    return parsed.select(schema.names).append_column(EXTRA, extra)


def _extra_of(parsed: pa.Table, unknown: Sequence[str], lines: Sequence[bytes]) -> pa.Array:
    """Return for each row the JSON of its unknown fields, taken from the line itself."""
    has_unknown = [False] * parsed.num_rows
    for name in unknown:
        for row in pc.indices_nonzero(parsed.column(name).combine_chunks().is_valid()).to_pylist():
            has_unknown[row] = True
    names = set(unknown)
    texts = [
        _extra_text({key: value for key, value in _fields(line).items() if key in names})
        if has
        else None
        for line, has in zip(lines, has_unknown, strict=True)
    ]
    return pa.array(texts, pa.string())


def _fields(line: bytes) -> dict[str, object]:
    fields = msgspec.json.decode(line)
    assert isinstance(fields, dict), "Arrow takes objects only"
    return fields


def _read_one_by_one(lines: Sequence[bytes]) -> ChunkContent:
    """Return the events among any lines."""
    rows: dict[tuple[str, int, str], list[dict[str, object]]] = {}
    unreadable_lines = 0
    for line in lines:
        row = _row(line)
        if row is None:
            unreadable_lines += 1
            continue
        node, incarnation, kind = row.pop("node"), row.pop("incarnation"), row.pop("kind")
        assert isinstance(node, str) and isinstance(incarnation, int) and isinstance(kind, str)
        rows.setdefault((node, incarnation, kind), []).append(row)
    return ChunkContent(
        tuple(
            EventPiece(*key, _sorted(pa.Table.from_pylist(own, schema=_piece_schema(key[2]))))
            for key, own in sorted(rows.items())
        ),
        0,
        unreadable_lines,
    )


def _piece_schema(kind: str) -> pa.Schema:
    return columns_of(kind).append(pa.field(EXTRA, pa.string()))


def _sorted(table: pa.Table) -> pa.Table:
    """Return a piece in the order of time and line number; a node writes it like that, so this
    rarely moves a row.
    """
    t_ns, n = table.column("t_ns").to_numpy(), table.column("n").to_numpy()
    if (t_ns[1:] < t_ns[:-1]).any() or ((n[1:] < n[:-1]) & (t_ns[1:] == t_ns[:-1])).any():
        return table.sort_by([("t_ns", "ascending"), ("n", "ascending")])
    return table


def _row(line: bytes) -> dict[str, object] | None:
    """Return a line as a row, with fields that do not fit their column moved to `extra`; None if it
    is no event.
    """
    fields = _decode(line)
    if fields is None:
        return None
    row: dict[str, object] = {}
    extra: dict[str, object] = {}
    schema = columns_of(str(fields["kind"]))
    for name, value in fields.items():
        if name in _FROM_KEY:
            row[name] = value
            continue
        index = schema.get_field_index(name)
        (row if index >= 0 and _fits(value, schema.field(index).type) else extra)[name] = value
    row.pop("run", None)
    row[EXTRA] = _extra_text(extra) if extra else None
    return row


def _decode(line: bytes) -> dict[str, object] | None:
    """Return a line's fields if it is a JSON object with a complete envelope."""
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    has_envelope = all(
        fields.get(name) is not None and _fits(fields[name], ENVELOPE_COLUMNS[name])
        for name in NEVER_NULL
    )
    return fields if has_envelope else None


def _fits(value: object, data_type: pa.DataType) -> bool:
    if value is None:
        return True
    if type(value) is not _PYTHON_TYPES[data_type]:
        return False
    return not isinstance(value, int) or value in INT64


def _extra_text(fields: Mapping[str, object]) -> str:
    return _encode_extra(fields).decode()
