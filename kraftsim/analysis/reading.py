"""Reads one event log file, JSON lines, into columns.

Whole files are parsed by Arrow. Only files that it rejects, because a line is no event or a field
has an unexpected type, are read line by line. A last line without line feed is the result of kill
-9: it is dropped and counted, and is never an error.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kraftsim.analysis.columns import (
    ENVELOPE_COLUMNS,
    EXTRA,
    NEVER_NULL,
    line_schema,
    schema_of_kinds,
)

BLOCK_BYTES: Final = 4 * 1024 * 1024
"""Arrow parses a file in blocks of this size, several at a time; no line may be longer."""
KIND: Final = re.compile(rb'"kind": ?"(\w+)"')
DEPTH_MAX: Final = 500
"""Arrow's parser aborts the process on a line with much deeper nesting; events are flat."""
INT64: Final = range(-(1 << 63), 1 << 63)

_PYTHON_TYPES: Final = {pa.int64(): int, pa.string(): str, pa.bool_(): bool}
_encode_extra = msgspec.json.Encoder(order="sorted").encode


class LogContent(NamedTuple):
    """The events of one file, and what could not be read of it."""

    events: pa.Table
    torn_bytes: int
    unreadable_lines: int


def read_log(path: Path) -> LogContent:
    """Return the events of a file in the order of its lines: envelope, `extra`, and at least those
    columns of `line_schema` that are not all null.
    """
    data = path.read_bytes()
    whole_bytes = data.rfind(b"\n") + 1
    tail = data[whole_bytes:]
    torn_bytes = 0
    if tail and _decode(tail) is None:
        torn_bytes = len(tail)
        data = data[:whole_bytes]
    if not data.strip():
        return LogContent(_table([]), torn_bytes, 0)
    try:
        events = None if _is_nested_deeply(data) else _parse(data)
    except (pa.ArrowInvalid, msgspec.DecodeError, RecursionError):
        events = None
    if events is not None:
        return LogContent(events, torn_bytes, 0)
    rows = [_row(line) for line in data.split(b"\n") if line.strip()]
    known = [row for row in rows if row is not None]
    return LogContent(_table(known), torn_bytes, len(rows) - len(known))


def _is_nested_deeply(data: bytes) -> bool:
    """Return whether a line has so many opening brackets that it may be nested too deeply for
    Arrow.
    """
    if data.count(b"{") + data.count(b"[") - data.count(b"\n") <= DEPTH_MAX:
        return False
    return any(line.count(b"{") + line.count(b"[") > DEPTH_MAX for line in data.split(b"\n"))


def _parse(data: bytes) -> pa.Table | None:
    """Return the events, or None if a line lacks a part of the envelope. Raises ArrowInvalid.

    Arrow puts a null into each absent column of each line, so it gets only the columns of the kinds
    in the file.
    """
    schema = schema_of_kinds(kind.decode() for kind in sorted(set(KIND.findall(data))))
    parsed = pyarrow.json.read_json(
        pa.BufferReader(data),
        read_options=pyarrow.json.ReadOptions(block_size=min(BLOCK_BYTES, len(data) + 1)),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer"
        ),
    )
    if any(parsed.column(name).null_count for name in NEVER_NULL):
        return None
    unknown = [name for name in parsed.column_names if name not in schema.names]
    if any(name in line_schema().names for name in unknown):
        raise pa.ArrowInvalid("a line has a field that its kind lacks")
    extra = (
        pa.nulls(parsed.num_rows, pa.string()) if not unknown else _extra_of(parsed, unknown, data)
    )
    return parsed.select(schema.names).append_column(EXTRA, extra)


def _extra_of(parsed: pa.Table, unknown: list[str], data: bytes) -> pa.Array | None:
    """Return for each row the JSON of its unknown fields, taken from the line itself."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    if len(lines) != parsed.num_rows:
        raise pa.ArrowInvalid("not one object a line")
    has_unknown = [False] * parsed.num_rows
    for name in unknown:
        for row in pc.indices_nonzero(parsed.column(name).combine_chunks().is_valid()).to_pylist():
            has_unknown[row] = True
    fields = (
        (msgspec.json.decode(line) if has else None)
        for line, has in zip(lines, has_unknown, strict=True)
    )
    names = set(unknown)
    texts = [
        None
        if row is None
        else _extra_text({name: value for name, value in row.items() if name in names})
        for row in fields
    ]
    return pa.array(texts, pa.string())


def _row(line: bytes) -> dict[str, object] | None:
    """Return a line as a row, with fields that do not fit their column moved to `extra`; None if it
    is no event.
    """
    fields = _decode(line)
    if fields is None:
        return None
    row: dict[str, object] = {}
    extra: dict[str, object] = {}
    schema = line_schema()
    for name, value in fields.items():
        index = schema.get_field_index(name)
        (row if index >= 0 and _fits(value, schema.field(index).type) else extra)[name] = value
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


def _extra_text(fields: dict[str, object]) -> str:
    return _encode_extra(fields).decode()


def _table(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=line_schema().append(pa.field(EXTRA, pa.string())))
