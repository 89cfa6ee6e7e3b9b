"""Runs the SQL of the invariants with DuckDB: a second, independent engine for the same queries."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from kraftsim.analysis.verdicts import Row, verdict_query
from kraftsim.analysis.views import EVENTS_VIEW, view_queries
from kraftsim.invariants.invariant import Invariant


def rows_by_duckdb(parquet: Path | str, invariants: Sequence[Invariant]) -> list[Row]:
    """Return the rows about the Parquet file of a run."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW {EVENTS_VIEW} AS SELECT * FROM read_parquet('{parquet}')")
        for name, query in view_queries():
            connection.execute(f"CREATE VIEW {name} AS {query}")
        return [Row(*row) for row in connection.execute(verdict_query(invariants)).fetchall()]


def rows_of_all_by_duckdb(
    parquets: Mapping[str, Path], invariants: Sequence[Invariant]
) -> Mapping[str, list[Row]]:
    """Return the rows about several runs from one query; the keys are the values of `run` in the
    views.
    """
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE {EVENTS_VIEW} AS {_all_of(parquets)}")
        for name, query in view_queries(are_many=True):
            connection.execute(f"CREATE VIEW {name} AS {query}")
        rows = [Row(*row) for row in connection.execute(verdict_query(invariants)).fetchall()]
    return {run: [row for row in rows if row.run == run] for run in parquets}


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
