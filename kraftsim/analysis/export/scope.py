"""The events that an export covers: a window of a run, read in batches and in the order of time."""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from typing import IO, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraftsim.analysis.columns import (
    CAUSE_POSITION,
    DERIVED_COLUMNS,
    ENVELOPE_COLUMNS,
    EXTRA,
    POSITION,
    event_schema,
    fields_of,
)
from kraftsim.analysis.places import Where
from kraftsim.analysis.sentences import Value
from kraftsim.analysis.store import count_kinds, read_events
from kraftsim.events.catalogue import KINDS
from protocol.api_keys import ApiKey

BATCH_ROWS: Final = 4096
"""Events that are Python objects at the same time."""
SLICE_ROWS: Final = 200_000
"""Events of all kinds that are read at the same time. Each slice scans the whole run, and most
columns of an event are null.
"""
EXACT_MAX: Final = (1 << 53) - 1
"""JavaScript's numbers are exact up to here."""
NO_CAUSE: Final = -1
_API_NAMES: Final = {
    int(key): key.name.replace("_", " ").title().replace(" ", "") for key in ApiKey
}
_ENVELOPE: Final = (*ENVELOPE_COLUMNS, EXTRA, POSITION, CAUSE_POSITION)

_FIELDS: Final = tuple(
    name for name in event_schema().names if name not in (*ENVELOPE_COLUMNS, *DERIVED_COLUMNS)
)

Integers = npt.NDArray[np.int64]


class LoggedEvent(NamedTuple):
    """One event. `cause` is the position of the event that caused it, -1 where none is known;
    `fields` are its own, without those that are null.
    """

    position: int
    t_ns: int
    wall_ms: int
    node: str
    incarnation: int
    n: int
    kind: str
    cause: int
    fields: dict[str, Value]

    @property
    def event_id(self) -> str:
        """The name of the event in reports and traces."""
        return f"{self.node}.{self.incarnation}.{self.n}"

    def number(self, name: str) -> int:
        """Return a number among the fields, -1 if it is missing."""
        value = self.fields.get(name, -1)
        return value if isinstance(value, int) else -1

    def text(self, name: str) -> str:
        """Return a text among the fields, '' if it is missing."""
        value = self.fields.get(name, "")
        return value if isinstance(value, str) else ""


class Writer(Protocol):
    """Writes a format, and returns remarks for the user: what is not in the output."""

    def __call__(self, scope: "Scope", out: IO[bytes]) -> list[str]:
        """Write the events of a scope."""
        ...


class Scope:
    """A window of a run: the events at the positions from `first` to before `end`.

    `advance` is called with the number of events done since the last call.
    """

    def __init__(
        self,
        parquet: Where,
        *,
        from_ms: float | None = None,
        until_ms: float | None = None,
        limit: int | None = None,
        advance: Callable[[int], None] = lambda events: None,
    ) -> None:
        self.parquet = parquet
        self.advance = advance
        times = read_events(parquet, columns=["t_ns"]).column("t_ns")
        self._t_ns: Integers = np.asarray(times.combine_chunks(), np.int64)
        self.first, self.end = 0, len(self._t_ns)
        if from_ms is not None:
            self.first = int(np.searchsorted(self._t_ns, round(from_ms * 1e6), side="left"))
        if until_ms is not None:
            self.end = int(np.searchsorted(self._t_ns, round(until_ms * 1e6), side="right"))
        if limit is not None:
            self.end = min(self.end, self.first + limit)
        if self.first >= self.end:
            last_ms = self._t_ns[-1] / 1e6 if len(self._t_ns) else 0
            raise ValueError(
                f"no event lies in this window: the run has {len(self._t_ns):,} events and ends at "
                f"{last_ms:.0f} ms; change --from, --until or --limit"
            )

    def narrow(self, first: int, end: int) -> None:
        """Cover the events at the positions from `first` to before `end`, as far as the run has
        them.
        """
        self.first, self.end = max(first, 0), min(end, len(self._t_ns))

    @property
    def begin_ns(self) -> int:
        """The time of the first event."""
        return int(self._t_ns[self.first])

    @property
    def end_ns(self) -> int:
        """The time of the last event."""
        return int(self._t_ns[self.end - 1])

    @property
    def is_whole(self) -> bool:
        """Whether the window is the whole run."""
        return self.first == 0 and self.end == len(self._t_ns)

    def __len__(self) -> int:
        return self.end - self.first

    @cached_property
    def run(self) -> str:
        """The name of the run, '' if its events have none."""
        names = read_events(self.parquet, columns=["run"], positions=[self.first]).column("run")
        return names[0].as_py() or ""

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many events of each kind the whole run has."""
        return dict(count_kinds(self.parquet))

    def whole_run(self, columns: Iterable[str]) -> pa.Table:
        """Return some columns of all events, also of those outside of the window."""
        return read_events(self.parquet, columns=columns)

    def table(self, kinds: Collection[str] | None, columns: Iterable[str]) -> pa.Table:
        """Return some columns of the events of some kinds in the window."""
        names = list(dict.fromkeys((*columns, POSITION)))
        positions = range(self.first, self.end) if len(self) <= SLICE_ROWS else None
        table = read_events(self.parquet, kinds=kinds, columns=names, positions=positions)
        if positions is not None or self.is_whole:
            return table
        position = table.column(POSITION)
        inside = pc.and_(pc.greater_equal(position, self.first), pc.less(position, self.end))
        return table.filter(inside)

    def events(self, kinds: Collection[str]) -> Iterator[LoggedEvent]:
        """Yield the events of some kinds, with their fields."""
        yield from self._logged(self.table(kinds, _columns_of(kinds)))

    def all_events(self) -> Iterator[LoggedEvent]:
        """Yield all events, with their fields."""
        for begin in range(self.first, self.end, SLICE_ROWS):
            yield from self.at_positions(range(begin, min(begin + SLICE_ROWS, self.end)))

    def at_positions(self, positions: Iterable[int]) -> Iterator[LoggedEvent]:
        """Yield the events at some positions, with their fields."""
        wanted = list(positions)
        if not wanted:
            return
        kinds = read_events(self.parquet, columns=["kind"], positions=wanted).column("kind")
        columns = _columns_of(kinds.unique().to_pylist())
        yield from self._logged(read_events(self.parquet, columns=columns, positions=wanted))

    def _logged(self, table: pa.Table) -> Iterator[LoggedEvent]:
        for batch in table.to_batches(max_chunksize=BATCH_ROWS):
            columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
            own = {kind: _names_in(kind, columns) for kind in set(columns["kind"])}
            for row, kind in enumerate(columns["kind"]):
                values = {name: columns[name][row] for name in own[kind]}
                cause = columns[CAUSE_POSITION][row]
                yield LoggedEvent(
                    position=columns[POSITION][row],
                    t_ns=columns["t_ns"][row],
                    wall_ms=columns["wall_ms"][row] or 0,
                    node=columns["node"][row],
                    incarnation=columns["incarnation"][row],
                    n=columns["n"][row],
                    kind=kind,
                    cause=NO_CAUSE if cause is None else cause,
                    fields={name: value for name, value in values.items() if value is not None},
                )
            self.advance(batch.num_rows)


def _columns_of(kinds: Collection[str]) -> list[str]:
    """Return the columns in which events of some kinds have values."""
    names = {name for kind in kinds if kind in KINDS for name in fields_of(kind)}
    unknown = [] if all(kind in KINDS for kind in kinds) else event_schema().names
    return list(dict.fromkeys((*_ENVELOPE, *sorted(names), *unknown)))


def texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of texts, whether it is dictionary-encoded or not."""
    return column.cast(pa.string())


def codes(column: pa.ChunkedArray) -> Integers:
    """Return a number for each value of a column, the same for the same value; -1 for null."""
    encoded = column.combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    return np.asarray(encoded.indices.fill_null(-1), np.int64)


def api_name(api_key: int) -> str:
    """Return the name of an API as Kafka writes it."""
    return _API_NAMES.get(api_key, f"API {api_key}")


def exact(fields: dict[str, Value]) -> dict[str, Value]:
    """Return fields for JSON that JavaScript reads: integers that it would round become texts."""
    return {
        name: str(value) if isinstance(value, int) and abs(value) > EXACT_MAX else value
        for name, value in fields.items()
    }


def _names_in(kind: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return the fields of a kind that were read; an unknown kind can have any, and `extra` has
    those that no known kind has.
    """
    own = fields_of(kind) if kind in KINDS else _FIELDS
    return tuple(name for name in (*own, EXTRA) if name in columns)
