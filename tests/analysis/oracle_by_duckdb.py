"""Runs the SQL of the invariants with DuckDB: a second, independent engine for the same queries."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kraftsim.analysis.compaction import compact
from kraftsim.analysis.dataset import Dataset
from kraftsim.analysis.ingest import ingest_runs
from kraftsim.analysis.places import Where
from kraftsim.analysis.queries import DuckdbLimits, DuckdbQueries
from kraftsim.analysis.verdicts import Row, by_run, find_rows
from kraftsim.analysis.views import Runs, all_runs, one_run
from kraftsim.invariants.invariant import Invariant


def rows_by_duckdb(parquet: Where, invariants: Sequence[Invariant]) -> list[Row]:
    """Return the rows about a run, by the directory of its files."""
    runs = one_run(parquet)
    return find_rows(DuckdbQueries(runs, DuckdbLimits(threads=1)), runs, invariants)


def rows_of_all_by_duckdb(runs: Runs, invariants: Sequence[Invariant]) -> Mapping[str, list[Row]]:
    """Return the rows about several runs with the same queries, by run."""
    found = by_run(find_rows(DuckdbQueries(runs, DuckdbLimits(threads=1)), runs, invariants))
    return {manifest.run: found.get(manifest.run, []) for manifest in runs.manifests}


def as_one(directories: Mapping[str, Path], dataset: Path) -> Runs:
    """Read several runs into one dataset, join their files, and return them all."""
    ingest_runs(list(directories.values()), dataset, names=list(directories))
    compact(Dataset(dataset))
    return all_runs(dataset)
