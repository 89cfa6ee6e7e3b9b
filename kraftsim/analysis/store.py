"""Reads the events of an ingested run into Arrow: by kind, column and position.

Everything that needs no SQL reads here (the report, exports, witnesses), so that only this module
and those that write know how the files lie.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraftsim.analysis.columns import POSITION


def read_events(
    parquet: Path | str,
    *,
    kinds: Collection[str] | None = None,
    columns: Iterable[str] | None = None,
    positions: Iterable[int] | None = None,
) -> pa.Table:
    """Return events in the order of time; without arguments, all events with all columns.

    `columns` that no event has may be absent. Raises OSError for a place without events.
    """
    filters: list[tuple[str, str, list[str] | list[int]]] = []
    if kinds is not None:
        filters.append(("kind", "in", sorted(kinds)))
    if positions is not None:
        filters.append((POSITION, "in", sorted(set(positions))))
    there = set(pq.read_schema(parquet).names)
    wanted = None if columns is None else [name for name in columns if name in there]
    return pq.read_table(parquet, columns=wanted, filters=filters or None)


def count_kinds(parquet: Path | str) -> Mapping[str, int]:
    """Return how many events of each kind there are, by kind."""
    counts = pc.value_counts(pq.read_table(parquet, columns=["kind"]).column("kind")).to_pylist()
    return {row["values"]: row["counts"] for row in sorted(counts, key=lambda row: row["values"])}
