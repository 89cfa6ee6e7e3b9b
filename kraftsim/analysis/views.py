"""One view per event kind over ingested runs: the tables that the SQL of invariants and ad-hoc
queries use.

The texts are limited to SQL that Spark and DuckDB share, so that the same queries run on both.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from kraftsim.analysis.columns import (
    CAUSE_POSITION,
    ENVELOPE_COLUMNS,
    EXTRA,
    LAMPORT,
    POSITION,
    event_schema,
    family_of_kind,
    fields_of,
    view_name,
)
from kraftsim.analysis.dataset import (
    Dataset,
    RunManifest,
    dataset_of,
    files_by_family,
    names_to_filter,
)
from kraftsim.events.catalogue import KINDS

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

EVENTS_VIEW: Final = "events"
"""The view of all events, with all columns: for ad-hoc queries."""
ONE_RUN: Final = ""
"""The value of `run` in the views of a single run."""
_SQL_TYPES: Final = {pa.int64(): "BIGINT", pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN"}
_SPARK_TYPES: Final = {pa.int64(): "bigint", pa.string(): "string", pa.bool_(): "boolean"}


class Runs(NamedTuple):
    """The runs of a dataset that a query is about.

    Where they `are_many`, `run` in the views distinguishes them; otherwise it is empty, whatever
    the run is called.
    """

    root: Path
    manifests: tuple[RunManifest, ...]
    are_many: bool

    @property
    def kinds(self) -> Collection[str]:
        """The kinds that occur."""
        return {kind: None for manifest in self.manifests for kind in manifest.kinds}.keys()

    @property
    def event_count(self) -> int:
        """The number of events of all runs."""
        return sum(manifest.ingest.event_count for manifest in self.manifests)

    def files(self, kind: str) -> tuple[str, ...]:
        """Return the paths of the files that hold events of a kind."""
        found = files_by_family(self.manifests, (kind,))
        return tuple(str(self.root / path) for path in found.get(family_of_kind(kind), ()))


def one_run(parquet: Path | str) -> Runs:
    """Return a run by the directory of its files. Raises NoRun."""
    dataset, manifest = dataset_of(parquet)
    return Runs(dataset.root, (manifest,), are_many=False)


def all_runs(root: Path | str, names: Iterable[str] | None = None) -> Runs:
    """Return all runs of a dataset, or those named. Raises NoRun for an unknown name."""
    dataset = Dataset(root)
    chosen = dataset.manifests() if names is None else map(dataset.manifest, names)
    return Runs(dataset.root, tuple(chosen), are_many=True)


def duckdb_views(
    connection: "duckdb.DuckDBPyConnection",
    runs: Runs,
    kinds: Iterable[str] = tuple(KINDS),
    *,
    as_tables: bool = False,
) -> None:
    """Create the view of each kind in DuckDB.

    `as_tables` reads each once: for small runs planning takes most of the time, and DuckDB plans a
    view again wherever a query names it.
    """
    loaded = _family_tables(connection, runs) if as_tables else {}
    for kind in kinds:
        query = _empty(kind)
        paths = runs.files(kind)
        if paths:
            source = loaded.get(family_of_kind(kind)) or _parquet(paths)
            names = ", ".join((_selected(runs), *(f"event.{name}" for name in _columns(kind))))
            query = f"SELECT {names} FROM {source} AS event WHERE {_condition(kind, runs)}"
        what = "TABLE" if as_tables else "VIEW"
        connection.execute(f"CREATE OR REPLACE {what} {view_name(kind)} AS {query}")


def duckdb_events(connection: "duckdb.DuckDBPyConnection", runs: Runs) -> None:
    """Create the view of all events, with all columns."""
    names = event_schema().names
    parts = [
        "SELECT * FROM " + _parquet([str(runs.root / path) for path in paths])
        for paths in files_by_family(runs.manifests).values()
    ]
    every = " UNION ALL BY NAME ".join([*parts, _no_events()])
    filtered = names_to_filter(runs.manifests)
    where = "" if filtered is None else f" WHERE run IN ({', '.join(map(_quoted, filtered))})"
    connection.execute(
        f"CREATE OR REPLACE VIEW {EVENTS_VIEW} AS SELECT {', '.join(map(_name, names))} "
        f"FROM ({every}){where}"
    )


def _no_events() -> str:
    columns = ", ".join(
        f"CAST(NULL AS {_SQL_TYPES[field.type]}) AS {_name(field.name)}" for field in event_schema()
    )
    return f"SELECT {columns} WHERE 1 = 0"


def _name(column: str) -> str:
    return f'"{column}"'


def _family_tables(connection: "duckdb.DuckDBPyConnection", runs: Runs) -> Mapping[str, str]:
    """Read the files of each family into a table, and return the tables' names by family: each file
    is opened once, not once per kind.
    """
    names = {}
    for family, paths in files_by_family(runs.manifests).items():
        names[family] = f"family_{family}"
        source = _parquet([str(runs.root / path) for path in paths])
        connection.execute(f"CREATE TABLE IF NOT EXISTS {names[family]} AS SELECT * FROM {source}")
    return names


def _parquet(paths: Iterable[str]) -> str:
    listed = ", ".join(_quoted(path) for path in paths)
    return f"read_parquet([{listed}], hive_partitioning = false)"


def _condition(kind: str, runs: Runs) -> str:
    """Return what selects the events of a kind: also by run if a file holds other runs, too."""
    names = names_to_filter(runs.manifests)
    if names is None:
        return f"kind = '{kind}'"
    return f"kind = '{kind}' AND run IN ({', '.join(map(_quoted, names))})"


def make_views(
    spark: "SparkSession",
    runs: Runs,
    kinds: Iterable[str] = tuple(KINDS),
    *,
    is_small: bool = False,
) -> None:
    """Create the view of each kind in Spark; they replace those of other runs.

    Each view reads only its own few columns, and that of a kind that does not occur nothing:
    planning over all columns of all kinds takes Spark longer than the execution. With `is_small`
    the events are read once and cached.
    """
    for kind in kinds:
        view = frame_of(spark, runs, kind)
        if is_small and kind in runs.kinds:
            view = view.coalesce(1).cache()
        view.createOrReplaceTempView(view_name(kind))


def frame_of(spark: "SparkSession", runs: Runs, kind: str) -> "DataFrame":
    """Return the events of a kind as a frame of Spark, with the columns of its view."""
    paths = runs.files(kind)
    columns = _columns(kind)
    if not paths:
        return spark.sql(_empty(kind, _SPARK_TYPES))
    frame = (
        spark.read.schema(_struct(("run", *columns, "kind")))
        .option("recursiveFileLookup", "true")
        .parquet(*paths)
        .where(_condition(kind, runs))
    )
    return frame.selectExpr("run" if runs.are_many else f"'{ONE_RUN}' AS run", *columns)


def all_events(spark: "SparkSession", runs: Runs) -> "DataFrame":
    """Return all events with all columns as a frame of Spark."""
    frames = []
    for paths in files_by_family(runs.manifests).values():
        read = spark.read.schema(_struct(event_schema().names))
        frames.append(
            read.option("recursiveFileLookup", "true").parquet(
                *(str(runs.root / path) for path in paths)
            )
        )
    if not frames:
        return spark.createDataFrame([], _struct(event_schema().names))
    every = frames[0]
    for frame in frames[1:]:
        every = every.union(frame)
    return every


def _selected(runs: Runs) -> str:
    return "event.run" if runs.are_many else f"'{ONE_RUN}' AS run"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _empty(kind: str, types: Mapping[pa.DataType, str] = _SQL_TYPES) -> str:
    """Return a query without rows that has the columns of a kind."""
    schema = event_schema()
    names = ", ".join(
        f"CAST(NULL AS {types[schema.field(name).type]}) AS {name}"
        for name in ("run", *_columns(kind))
    )
    return f"SELECT {names} WHERE 1 = 0"


def _struct(names: Iterable[str]) -> "StructType":
    from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

    types = {pa.int64(): LongType(), pa.string(): StringType(), pa.bool_(): BooleanType()}
    schema = event_schema()
    return StructType([StructField(name, types[schema.field(name).type]) for name in names])


def _columns(kind: str) -> tuple[str, ...]:
    return (
        POSITION,
        LAMPORT,
        CAUSE_POSITION,
        EXTRA,
        *(name for name in ENVELOPE_COLUMNS if name not in ("kind", "run")),
        *fields_of(kind),
    )
