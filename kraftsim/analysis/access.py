"""Ingested runs for notebooks and scripts: `kraftsim.open_run` and `kraftsim.open_dataset`.

The same tables that the invariants use: one per kind of event, called as the kind in snake_case
(`record_acknowledged`), `events` with all of them, and those of a campaign
(`kraftsim.analysis.campaign_tables`).
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from kraftsim.analysis.analyze import analysis_of
from kraftsim.analysis.campaign_tables import TABLES
from kraftsim.analysis.columns import own_kinds, view_name
from kraftsim.analysis.dataset import DATA_SUFFIX, RUN_PREFIX, Dataset, NoRun
from kraftsim.analysis.engines import Engine
from kraftsim.analysis.ingest import EVENTS_DIRECTORY, EVENTS_FILE, ingested
from kraftsim.analysis.places import Place, Where, one_line, place_of
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
from kraftsim.events.catalogue import KINDS

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    from pyspark.sql import SparkSession

    from kraftsim.analysis.analysis import Analysis
    from kraftsim.invariants.verdict import Verdict


class EventTables:
    """The tables of some runs."""

    def __init__(self, runs: Runs, tables: Mapping[str, Place] | None = None) -> None:
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

    def relation(self, query: str) -> "duckdb.DuckDBPyRelation":
        """Return the result of a query as a relation of DuckDB, which computes it when it is read.

        Raises as `sql`.
        """
        import duckdb

        try:
            return self._connected().sql(query)
        except duckdb.Error as trouble:
            raise ValueError(str(trouble)) from trouble

    def register(self, spark: "SparkSession") -> None:
        """Create the tables as temporary views of a Spark session, for `spark.sql` and
        `spark.table`.
        """
        own = own_kinds()
        make_views(spark, self.runs, (*KINDS, *own), own=own)
        all_events(spark, self.runs).createOrReplaceTempView(EVENTS_VIEW)
        for name, path in self._tables.items():
            frame = (
                spark.read.parquet(str(path))
                if path.is_local
                else spark.createDataFrame(_table_of(path))
            )
            frame.createOrReplaceTempView(name)

    def _connected(self) -> "duckdb.DuckDBPyConnection":
        if self._connection is None:
            import duckdb

            self._connection = duckdb.connect()
            own = own_kinds()
            duckdb_views(self._connection, self.runs, (*KINDS, *own), own=own)
            duckdb_events(self._connection, self.runs)
            for name, path in self._tables.items():
                if path.is_local:
                    place = str(path / "*.parquet").replace("'", "''")
                    self._connection.execute(
                        f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{place}')"
                    )
                else:
                    self._connection.register(name, _table_of(path))
        return self._connection


def _table_of(directory: Place) -> pa.Table:
    """Return a remote table of a campaign, which has a row per run or less."""
    files = [directory / file.path for file in directory.files(DATA_SUFFIX)]
    with one_line(directory):
        read = directory.many(lambda file: pq.read_table(pa.BufferReader(file.read())), files)
        return pa.concat_tables(list(read))


class OpenedRun(EventTables):
    """One run: its tables, its events in Arrow, and its analysis."""

    def __init__(self, directory: Place, parquet: Place) -> None:
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

    @property
    def verdicts(self) -> "tuple[Verdict, ...]":
        """The results of all invariants, as in `analysis`."""
        return tuple(self.analysis().verdicts)

    def report(self, to: Path | str | None = None) -> Path:
        """Write the HTML report, by default to report.html in the run's directory, which is one of
        this machine; return its path.
        """
        from kraftsim.analysis.report import write_report

        return Path(str(write_report(self.directory, None if to is None else Path(to))))


def open_run(directory: Where) -> OpenedRun:
    """Return a run by its directory, or by an address such as `s3a://bucket/runs/seven`; its event
    logs are ingested first if that was not done. It may also be a run of a dataset, by its
    directory there: DATASET/run=NAME.

    Raises NoEvents for another directory, and OSError.
    """
    run = place_of(directory)
    return OpenedRun(run, place_of(ingested(run).parquet))


def open_dataset(directory: Where, runs: Iterable[str] | None = None) -> EventTables:
    """Return the runs of a dataset, or those named: `run` distinguishes them in all tables.

    The directory, or address, may be that of a campaign (`kraftsim sweep --spark --out DIR`): then
    its tables are there, too. Raises NoRun for a directory without runs and for an unknown name,
    and OSError.
    """
    root = place_of(directory)
    root.check()
    names = {file.path.partition("/")[0] for file in (root / TABLES).files(DATA_SUFFIX)}
    tables = {name: root / TABLES / name for name in sorted(names)}
    place = root / EVENTS_DIRECTORY if tables else root
    found = all_runs(place, runs)
    if not found.manifests:
        raise NoRun(f"{root} is no dataset of runs: `kraftsim ingest RUN... --dataset` makes one")
    return EventTables(found, tables)


def open_any(directory: Where) -> EventTables:
    """Return the tables of a run, of a dataset, or of a campaign. Raises NoRun or NoEvents."""
    place = place_of(directory)
    place.check()
    if (place / TABLES).is_directory() or Dataset(place).manifest_files():
        return open_dataset(place)
    if place.name.startswith(RUN_PREFIX) or any(
        (place / each).is_directory() for each in (EVENTS_DIRECTORY, EVENTS_FILE)
    ):
        return open_run(place)
    raise NoRun(f"{place} is neither a run, nor a dataset, nor the output of a campaign")
