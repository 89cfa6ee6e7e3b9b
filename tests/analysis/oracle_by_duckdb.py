"""Runs the SQL of the invariants with DuckDB: a second, independent engine for the same queries."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from kraftsim.analysis.verdicts import Row, verdict_query
from kraftsim.analysis.views import EVENTS_VIEW, view_queries
from kraftsim.invariants.invariant import Invariant

AT_ONCE = 8
"""The number of invariants in one query: DuckDB plans several small queries faster than a large
one.
"""


def rows_by_duckdb(parquet: Path | str, invariants: Sequence[Invariant]) -> list[Row]:
    """Return the rows about the Parquet file of a run."""
    return _rows(f"SELECT * FROM read_parquet('{parquet}')", invariants, are_many=False)


def rows_of_all_by_duckdb(
    parquets: Mapping[str, Path], invariants: Sequence[Invariant]
) -> Mapping[str, list[Row]]:
    """Return the rows about several runs with the same queries; the keys are the values of `run` in
    the views.
    """
    rows = _rows(_all_of(parquets), invariants, are_many=True)
    return {run: [row for row in rows if row.run == run] for run in parquets}


def _rows(events: str, invariants: Sequence[Invariant], *, are_many: bool) -> list[Row]:
    """Return the rows of all queries.

    The views are tables here: DuckDB would plan a view again wherever a query names it, and
    planning takes most of the time.
    """
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE {EVENTS_VIEW} AS {events}")
        for name, query in view_queries(are_many=are_many):
            connection.execute(f"CREATE TABLE {name} AS {query}")
        return [
            Row(*row)
            for first in range(0, len(invariants), AT_ONCE)
            for row in connection.execute(
                verdict_query(invariants[first : first + AT_ONCE])
            ).fetchall()
        ]


def as_one(parquets: Mapping[str, Path], target: Path) -> Path:
    """Write the events of several runs to one Parquet file, in which `run` is their keys, and
    return it.
    """
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({_all_of(parquets)}) TO '{target}' (FORMAT parquet)")
    return target


def _all_of(parquets: Mapping[str, Path]) -> str:
    return " UNION ALL ".join(
        f"SELECT * REPLACE ('{run}' AS run) FROM read_parquet('{parquet}')"
        for run, parquet in parquets.items()
    )
