"""The columns of an ingested run: the envelope, then every field of every event kind, each column
once.

The columns come from the event classes and never from the data, so that the view of a kind that did
not occur has its columns, too.
"""

from collections.abc import Iterable
from functools import cache
from typing import Final

import msgspec
import pyarrow as pa

from kraftsim.events.catalogue import KINDS, family
from kraftsim.events.event import Event
from kraftsim.events.event import view_name as view_name

ENVELOPE_COLUMNS: Final = {
    "run": pa.string(),
    "node": pa.string(),
    "incarnation": pa.int64(),
    "n": pa.int64(),
    "t_ns": pa.int64(),
    "wall_ms": pa.int64(),
    "kind": pa.string(),
}
NEVER_NULL: Final = ("node", "incarnation", "n", "t_ns", "kind")
EXTRA: Final = "extra"
"""JSON of the fields that no known event kind has, so that a log of a newer kraftsim loses
nothing.
"""
POSITION: Final = "position"
"""Place of an event in the order of time (t_ns, node, incarnation, n), from 0; it is also the
number of its row.
"""
CAUSE_POSITION: Final = "cause_position"
"""Position of the event on another node that caused this one; null where none is known."""
LAMPORT: Final = "lamport"
"""Lamport clock from the order on each node and the causes: smaller for any event that can have
caused another.
"""
DERIVED_COLUMNS: Final = {
    EXTRA: pa.string(),
    POSITION: pa.int64(),
    CAUSE_POSITION: pa.int64(),
    LAMPORT: pa.int64(),
}

_TYPES: Final = {int: pa.int64(), str: pa.string(), bool: pa.bool_()}


@cache
def fields_of(kind: str) -> tuple[str, ...]:
    """Return the field names of an event kind, in their order."""
    return tuple(field.name for field in msgspec.structs.fields(KINDS[kind]))


OWN_TYPES: Final = {int: "BIGINT", bool: "BOOLEAN", float: "DOUBLE"}
"""Type of a field of a kind that is not kraftsim's -> its type in SQL."""


def own_fields(kinds: Iterable[type[Event]]) -> dict[str, dict[str, str]]:
    """Return field -> SQL type of those kinds that are not kraftsim's: their fields are in the
    column `extra`, as JSON.
    """
    return {
        kind.__name__: {field.name: _own_type(field) for field in msgspec.structs.fields(kind)}
        for kind in kinds
        if kind.__name__ not in KINDS
    }


def _own_type(field: msgspec.structs.FieldInfo) -> str:
    """Return the SQL type of a field, a text for what is no number: lists are JSON."""
    alternatives = set(getattr(field.type, "__args__", (field.type,))) - {type(None)}
    return OWN_TYPES.get(alternatives.pop(), "VARCHAR") if len(alternatives) == 1 else "VARCHAR"


def own_kinds() -> dict[str, dict[str, str]]:
    """Return the same of all kinds that this process knows."""
    return own_fields(Event.kinds.values())


@cache
def columns_of(kind: str) -> pa.Schema:
    """Return the columns of a line of a kind, without those that all lines of a piece share: `n`,
    `t_ns`, `wall_ms`, and the fields of the kind; an unknown kind has no fields.
    """
    own = _columns_of(KINDS[kind]) if kind in KINDS else {}
    names = ("n", "t_ns", "wall_ms")
    return pa.schema([*((name, ENVELOPE_COLUMNS[name]) for name in names), *own.items()])


UNKNOWN_FAMILY: Final = "unknown"
"""The family of kinds that this release does not know; all their fields are in `extra`."""


@cache
def family_of_kind(kind: str) -> str:
    """Return the family of a kind: the name of the directory of its files."""
    return family(KINDS[kind].__module__) if kind in KINDS else UNKNOWN_FAMILY


@cache
def kinds_of_family(name: str) -> tuple[str, ...]:
    """Return the kinds of a family, sorted."""
    return tuple(kind for kind in KINDS if family_of_kind(kind) == name)


@cache
def family_schema(name: str) -> pa.Schema:
    """Return the columns of the files of a family: the envelope, the fields of all its kinds, and
    the derived columns.
    """
    columns = dict(ENVELOPE_COLUMNS)
    for kind in kinds_of_family(name):
        columns.update(_columns_of(KINDS[kind]))
    return pa.schema([*columns.items(), *DERIVED_COLUMNS.items()])


@cache
def event_schema() -> pa.Schema:
    """Return all columns of an ingested run, each field once."""
    columns = dict(ENVELOPE_COLUMNS)
    for kind in KINDS.values():
        for name, data_type in _columns_of(kind).items():
            assert columns.setdefault(name, data_type) == data_type, (
                f"{kind.__name__}.{name} has another type than the field of that name elsewhere"
            )
    return pa.schema([*columns.items(), *DERIVED_COLUMNS.items()])


def _columns_of(kind: type[Event]) -> dict[str, pa.DataType]:
    return {field.name: _column_type(kind, field) for field in msgspec.structs.fields(kind)}


def _column_type(kind: type[Event], field: msgspec.structs.FieldInfo) -> pa.DataType:
    alternatives = set(getattr(field.type, "__args__", (field.type,))) - {type(None)}
    assert len(alternatives) == 1, (
        f"{kind.__name__}.{field.name} must be an int, a str or a bool, or one of them and None"
    )
    return _TYPES[alternatives.pop()]
