"""Asks DuckDB what the invariants' SQL finds: a second, independent reading of the same texts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from kraftsim.analysis.verdicts import Found, Row, gather, verdict_query
from kraftsim.analysis.views import EVENTS_VIEW, view_queries
from kraftsim.invariants.invariant import Invariant


def found_by_duckdb(parquet: Path, invariants: Sequence[Invariant]) -> Mapping[str, Found]:
    """Return what is found of each invariant in the Parquet file of a run."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW {EVENTS_VIEW} AS SELECT * FROM read_parquet('{parquet}')")
        for name, query in view_queries():
            connection.execute(f"CREATE VIEW {name} AS {query}")
        return gather([Row(*row) for row in connection.execute(verdict_query(invariants)).fetchall()], invariants)
