"""The dynamic part of the picture: the events as columns of numbers, gzipped and in base64, which
the page unpacks into typed arrays.

Increasing columns are written as differences, which compress to almost nothing; texts are indexes
into one list. About 8 bytes of HTML an event.
"""

import base64
import gzip
import json
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraftsim.analysis.columns import CAUSE_POSITION, EXTRA, POSITION, fields_of
from kraftsim.events.catalogue import KINDS

Array = npt.NDArray[np.int64]
EXACT_MAX: Final = (1 << 53) - 1
"""JavaScript's numbers are exact up to here; longer ones are passed as text."""
INT32_MAX: Final = (1 << 31) - 1
GZIP_LEVEL: Final = 6


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column in the payload.

    `coding`: how its numbers are written; `meaning`: 'number', 'text' (index into the texts, -1
    null) or 'flag'.
    """

    name: str
    coding: str
    count: int
    meaning: str = "number"


class KindColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of one kind's own fields; a row per event of the kind, in order of time."""

    kind: str
    columns: tuple[Column, ...]


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of the bytes of a payload, in order: the common columns, those of each kind, then
    the texts as a JSON array of `texts_bytes`.
    """

    event_count: int
    common: tuple[Column, ...]
    kinds: tuple[KindColumns, ...]
    texts_bytes: int


class ReportPayload(msgspec.Struct, frozen=True, kw_only=True):
    """Layout and the packed bytes."""

    layout: Layout
    text: str


class Packer:
    """Collects columns and texts."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._texts: dict[str, int] = {}

    def numbers(self, name: str, values: Array) -> Column:
        """Add integers, in the shortest coding that fits."""
        coding, data = _coded(values)
        self._chunks.append(data)
        return Column(name=name, coding=coding, count=len(values))

    def flags(self, name: str, values: pa.Array) -> Column:
        """Add booleans; null is 2."""
        data = pc.if_else(values, 1, 0).fill_null(2).cast(pa.uint8())
        self._chunks.append(np.asarray(data, np.uint8).tobytes())
        return Column(name=name, coding="u1", count=len(data), meaning="flag")

    def texts(self, name: str, values: pa.Array) -> Column:
        """Add texts; each distinct one is stored once for the whole payload."""
        encoded = values.dictionary_encode()
        own = encoded.dictionary.to_pylist()
        numbers = np.array(
            [self._texts.setdefault(text, len(self._texts)) for text in own] or [0], np.int64
        )
        indices = np.asarray(encoded.indices.fill_null(-1), np.int64)
        column = self.numbers(name, np.where(indices >= 0, numbers[indices], -1))
        return msgspec.structs.replace(column, meaning="text")

    def finish(self) -> tuple[int, str]:
        """Return the size of the texts in bytes, and everything, gzipped and in base64."""
        texts = json.dumps(list(self._texts), ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "surrogatepass"
        )
        packed = gzip.compress(b"".join([*self._chunks, texts]), GZIP_LEVEL, mtime=0)
        return len(texts), base64.b64encode(packed).decode()


def pack(events: pa.Table, lane_of: dict[str, int]) -> ReportPayload:
    """Pack the events to draw; their positions may have gaps."""
    packer = Packer()
    kinds = sorted(pc.unique(events.column("kind")).to_pylist())
    kind = _numbered(events.column("kind"), {name: number for number, name in enumerate(kinds)})
    lane = _numbered(events.column("node"), lane_of)
    incarnation = _integers(events, "incarnation")
    common = (
        packer.numbers("t", _integers(events, "t_ns")),
        packer.numbers("lane", lane),
        packer.numbers("kind", kind),
        packer.numbers("incarnation", incarnation),
        packer.numbers("skipped", _skipped_lines(lane, incarnation, _integers(events, "n"))),
        packer.numbers("back", _rows_back_to_cause(events)),
    )
    by_kind = tuple(
        _pack_kind(packer, name, events.filter(pa.array(kind == number)))
        for number, name in enumerate(kinds)
    )
    texts_bytes, text = packer.finish()
    return ReportPayload(
        layout=Layout(
            event_count=events.num_rows, common=common, kinds=by_kind, texts_bytes=texts_bytes
        ),
        text=text,
    )


def _pack_kind(packer: Packer, kind: str, events: pa.Table) -> KindColumns:
    names = (
        fields_of(kind)
        if kind in KINDS
        else tuple(
            name for name in _all_fields() if events.column(name).null_count < events.num_rows
        )
    )
    if events.column(EXTRA).null_count < events.num_rows:
        names = (*names, EXTRA)
    return KindColumns(
        kind=kind,
        columns=tuple(
            _pack_field(packer, name, events.column(name).combine_chunks()) for name in names
        ),
    )


def _pack_field(packer: Packer, name: str, values: pa.Array) -> Column:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_boolean(values.type):
        return packer.flags(name, values)
    if pa.types.is_integer(values.type) and not values.null_count:
        numbers = np.asarray(values, np.int64)
        if not len(numbers) or (numbers.max() <= EXACT_MAX and numbers.min() >= -EXACT_MAX):
            return packer.numbers(name, numbers)
    return packer.texts(name, values.cast(pa.string()))


def _all_fields() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for kind in KINDS for name in fields_of(kind)))


def _coded(values: Array) -> tuple[str, bytes]:
    """Return the coding and the bytes: differences where they fit into 32 bits ('d1', 'd4'), single
    bytes ('u1'), or doubles ('f8').
    """
    if not len(values):
        return "u1", b""
    low, high = int(values.min()), int(values.max())
    differences = np.diff(values, prepend=0)
    smallest, largest = int(differences.min()), int(differences.max())
    if smallest >= -128 and largest <= 127:
        return "d1", differences.astype("<i1").tobytes()
    if low >= 0 and high <= 255:
        return "u1", values.astype("<u1").tobytes()
    if max(largest, -smallest) <= INT32_MAX and max(high, -low) <= EXACT_MAX:
        return "d4", differences.astype("<i4").tobytes()
    return "f8", values.astype("<f8").tobytes()


def _numbered(column: pa.ChunkedArray, numbers: dict[str, int]) -> Array:
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    table = np.array([numbers[name] for name in encoded.dictionary.to_pylist()] or [0], np.int64)
    return table[np.asarray(encoded.indices, np.int64)]


def _integers(events: pa.Table, name: str) -> Array:
    return np.asarray(events.column(name).combine_chunks(), np.int64)


def _skipped_lines(lane: Array, incarnation: Array, n: Array) -> Array:
    """Return how many line numbers are between an event and the previous one in its log: nearly
    always none, so that it costs nothing.
    """
    order = np.lexsort((incarnation, lane))  # stable: within a log the order of the rows
    same = (np.diff(lane[order]) == 0) & (np.diff(incarnation[order]) == 0)
    before = np.concatenate(([-1], np.where(same, n[order][:-1], -1)))[: len(n)]
    skipped = np.empty(len(n), np.int64)
    skipped[order] = n[order] - before - 1
    return skipped


def _rows_back_to_cause(events: pa.Table) -> Array:
    """Return how many rows before each event its cause is; 0 where none is known or drawn."""
    position = _integers(events, POSITION)
    cause = np.asarray(events.column(CAUSE_POSITION).combine_chunks().fill_null(-1), np.int64)
    row = np.searchsorted(position, cause)
    is_there = (cause >= 0) & (row < len(position))
    is_there &= (
        position[np.minimum(row, max(len(position) - 1, 0))] == cause if len(position) else is_there
    )
    return np.where(is_there, np.arange(len(position)) - row, 0)
