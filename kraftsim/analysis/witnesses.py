"""Fetches the few events that show a violation, with all fields, by their positions in a run.

Rows of the Parquet file are in the order of their positions, so that only the row groups that
contain one are read.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kraftsim.analysis.columns import (
    CAUSE_POSITION,
    DERIVED_COLUMNS,
    ENVELOPE_COLUMNS,
    POSITION,
    event_schema,
)
from kraftsim.analysis.places import Where
from kraftsim.analysis.sentences import Value, printable, sentence_of
from kraftsim.analysis.store import read_events

_NOT_SHOWN: Final = {*ENVELOPE_COLUMNS, *DERIVED_COLUMNS}


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a run: which, when, what.

    `fields` are the event's own, without those that are null.
    """

    event_id: str
    position: int
    node: str
    incarnation: int
    t_ns: int
    kind: str
    fields: dict[str, Value]

    @property
    def sentence(self) -> str:
        """What happened, as a sentence."""
        return sentence_of(self.node, self.kind, self.fields)

    def line(self) -> str:
        """Return the event as a line of text: its time, its id, and what happened."""
        return f"{self.t_ns / 1e9:.6f} s  {printable(self.event_id)}  {self.sentence}"


def fetch_witnesses(parquet: Where, positions: Iterable[int]) -> Mapping[int, Witness]:
    """Return the events at the positions, by position."""
    wanted = sorted(set(positions))
    if not wanted:
        return {}
    columns = [name for name in event_schema().names if name != CAUSE_POSITION]
    rows = read_events(parquet, columns=columns, positions=wanted).to_pylist()
    return {row[POSITION]: _event(row) for row in rows}


def _event(row: dict[str, Value]) -> Witness:
    node, incarnation, n, position, t_ns = (
        row["node"],
        row["incarnation"],
        row["n"],
        row[POSITION],
        row["t_ns"],
    )
    assert (
        isinstance(node, str)
        and isinstance(incarnation, int)
        and isinstance(t_ns, int)
        and isinstance(position, int)
    ), "ingest keeps types"
    fields = {
        name: value for name, value in row.items() if name not in _NOT_SHOWN and value is not None
    }
    return Witness(
        event_id=f"{node}.{incarnation}.{n}",
        position=position,
        node=node,
        incarnation=incarnation,
        t_ns=t_ns,
        kind=str(row["kind"]),
        fields=fields,
    )
