"""Ingested runs for notebooks and scripts: `kraftsim.open_run` and `kraftsim.open_dataset`.

The same tables that the invariants use: one per kind of event, called as the kind in snake_case
(`record_acknowledged`), `events` with all of them, and those of a campaign
(`kraftsim.analysis.campaign_tables`).
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from kraftsim.analysis.analyze import analysis_of
from kraftsim.analysis.campaign_tables import TABLES
from kraftsim.analysis.columns import view_name
from kraftsim.analysis.dataset import Dataset, NoRun
from kraftsim.analysis.engines import Engine
from kraftsim.analysis.ingest import EVENTS_DIRECTORY, EVENTS_FILE, ingested
from kraftsim.analysis.store import read_events
from kraftsim.analysis.views import (
    EVENTS_VIEW,
    Runs,
    all_events,
    all_runs,
    duckdb_events,
    duckdb_views,
    make_views,
    one_run,
)

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    from pyspark.sql import SparkSession

    from kraftsim.analysis.analysis import Analysis


class EventTables:
    """The tables of some runs."""

    def __init__(self, runs: Runs, tables: Mapping[str, Path] | None = None) -> None:
        self.runs = runs
        self._tables = dict(tables or {})
        self._connection: duckdb.DuckDBPyConnection | None = None

    @property
    def names(self) -> list[str]:
        """The names of the tables that have rows."""
        kinds = [view_name(kind) for kind in self.runs.kinds]
        return sorted([EVENTS_VIEW, *kinds, *self._tables])

    def sql(self, query: str) -> pa.Table:
        """Return the result of a query in the SQL of DuckDB, in this process.

        Raises ValueError with the engine's message if the query cannot be run.
        """
        import duckdb

        try:
            found = self._connected().sql(query)
            if found is None:  # a statement without a result
                return pa.table({})
            return found.to_arrow_table()
        except duckdb.Error as trouble:
            raise ValueError(str(trouble)) from trouble

    def pandas(self, query: str) -> "pd.DataFrame":
        """Return the result of a query as a pandas frame. Raises as `sql`."""
        frame: pd.DataFrame = self.sql(query).to_pandas()
        return frame

    def register(self, spark: "SparkSession") -> None:
        """Create the tables as temporary views of a Spark session, for `spark.sql` and
        `spark.table`.
        """
        make_views(spark, self.runs)
        all_events(spark, self.runs).createOrReplaceTempView(EVENTS_VIEW)
        for name, path in self._tables.items():
            spark.read.parquet(str(path)).createOrReplaceTempView(name)

    def _connected(self) -> "duckdb.DuckDBPyConnection":
        if self._connection is None:
            import duckdb

            self._connection = duckdb.connect()
            duckdb_views(self._connection, self.runs)
            duckdb_events(self._connection, self.runs)
            for name, path in self._tables.items():
                place = str(path / "*.parquet").replace("'", "''")
                self._connection.execute(
                    f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{place}')"
                )
        return self._connection


class OpenedRun(EventTables):
    """One run: its tables, its events in Arrow, and its analysis."""

    def __init__(self, directory: Path, parquet: Path) -> None:
        super().__init__(one_run(parquet))
        self.directory, self.parquet = directory, parquet

    def arrow(
        self, kinds: Collection[str] | None = None, columns: Iterable[str] | None = None
    ) -> pa.Table:
        """Return events of some kinds, or of all, in the order of time."""
        return read_events(self.parquet, kinds=kinds, columns=columns)

    def analysis(self, *, engine: Engine = Engine.AUTO) -> "Analysis":
        """Return the verdicts of all invariants, stored ones if the run is unchanged. Raises
        JavaMissing if Spark is needed and cannot start.
        """
        return analysis_of(self.directory, engine=engine)


def open_run(directory: Path | str) -> OpenedRun:
    """Return a run by its directory; its event logs are ingested first if that was not done.

    Raises NoEvents for another directory.
    """
    run = Path(directory)
    return OpenedRun(run, Path(ingested(run).parquet))


def open_dataset(directory: Path | str, runs: Iterable[str] | None = None) -> EventTables:
    """Return the runs of a dataset, or those named: `run` distinguishes them in all tables.

    The directory may be that of a campaign (`kraftsim sweep --spark --out DIR`): then its tables
    are there, too. Raises NoRun for a directory without runs and for an unknown name.
    """
    root = Path(directory)
    tables = {path.name: path for path in sorted((root / TABLES).glob("*")) if path.is_dir()}
    place = root / EVENTS_DIRECTORY if tables else root
    found = all_runs(place, runs)
    if not found.manifests:
        raise NoRun(f"{root} is no dataset of runs: `kraftsim ingest RUN... --dataset` makes one")
    return EventTables(found, tables)


def open_any(directory: Path) -> EventTables:
    """Return the tables of a run, of a dataset, or of a campaign. Raises NoRun or NoEvents."""
    if (directory / TABLES).is_dir() or any(Dataset(directory).manifests()):
        return open_dataset(directory)
    if (directory / EVENTS_DIRECTORY).is_dir() or (directory / EVENTS_FILE).is_dir():
        return open_run(directory)
    raise NoRun(f"{directory} is neither a run, nor a dataset, nor the output of a campaign")
