"""One view per event kind over ingested runs: the tables that the SQL of invariants and ad-hoc
queries use.

The texts are limited to SQL that Spark and DuckDB share, so that the same queries run on both.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kraftsim.analysis.columns import (
    CAUSE_POSITION,
    ENVELOPE_COLUMNS,
    EXTRA,
    LAMPORT,
    POSITION,
    event_schema,
    family_of_kind,
    family_schema,
    fields_of,
    view_name,
)
from kraftsim.analysis.dataset import (
    DataFile,
    Dataset,
    FileGroup,
    RunManifest,
    dataset_of,
    file_groups,
)
from kraftsim.analysis.places import Place, Where, place_of
from kraftsim.analysis.store import rows_of, scan
from kraftsim.events.catalogue import KINDS
from kraftsim.invariants.permitted_losses import not_ambiguous
from kraftsim.metadata.events import TopicDeleted

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TOPIC_DELETED: Final = TopicDeleted.__name__
EVENTS_VIEW: Final = "events"
"""The view of all events, with all columns: for ad-hoc queries."""
ONE_RUN: Final = ""
"""The value of `run` in the views of a single run."""
_SQL_TYPES: Final = {pa.int64(): "BIGINT", pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN"}
Own = Mapping[str, Mapping[str, str]]
"""Kind that is not kraftsim's -> field -> its type in SQL: `columns.own_fields`."""
NO_OWN: Final[Own] = {}


class Runs(NamedTuple):
    """The runs of a dataset that a query is about.

    Where they `are_many`, `run` in the views distinguishes them; otherwise it is empty, whatever
    the run is called.
    """

    root: Place
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

    def groups(self, kind: str) -> tuple[FileGroup, ...]:
        """Return the files that hold events of a kind."""
        return file_groups(self.manifests, (kind,)).get(family_of_kind(kind), ())


def one_run(parquet: Where) -> Runs:
    """Return a run by the directory of its files. Raises NoRun."""
    dataset, manifest = dataset_of(parquet)
    return Runs(dataset.root, (manifest,), are_many=False)


def all_runs(root: Where, names: Iterable[str] | None = None) -> Runs:
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
    own: Own = NO_OWN,
    for_invariants: bool = False,
) -> None:
    """Create the view of each kind in DuckDB; `own` are those that are not kraftsim's.

    `as_tables` reads each once: for small runs planning takes most of the time, and DuckDB plans a
    view again wherever a query names it. `for_invariants` leaves out what no invariant examines:
    see `TopicNames`.
    """
    loaded = _family_tables(connection, runs) if as_tables else {}
    filters = for_invariants and TOPIC_DELETED in runs.kinds
    for kind in _deletions_first(kinds) if filters else kinds:
        query = _empty(kind, own)
        groups = runs.groups(kind)
        if groups:
            columns = [f"event.{name}" for name in _columns(kind, own)]
            fields = [
                f"CAST(json_extract_string(event.{EXTRA}, '$.{name}') AS {form}) AS {name}"
                for name, form in own.get(kind, {}).items()
            ]
            names = ", ".join((_selected(runs), *columns, *fields))
            table = loaded.get(family_of_kind(kind))
            sources = (
                _sources(connection, runs.root, groups) if table is None else [(table, "true")]
            )
            query = " UNION ALL ".join(
                f"SELECT {names} FROM {source} AS event WHERE kind = '{kind}' AND {condition}"
                for source, condition in sources
            )
        if filters and _has_topic(kind, own):
            query = f"SELECT * FROM ({query}) AS every WHERE {not_ambiguous('every')}"
        what = "TABLE" if as_tables else "VIEW"
        connection.execute(f"CREATE OR REPLACE {what} {view_name(kind)} AS {query}")


def _deletions_first(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds with that of deleted topics, which comes first: the others need its view."""
    return tuple(dict.fromkeys((TOPIC_DELETED, *kinds)))


def _has_topic(kind: str, own: Own) -> bool:
    """Return whether events of a kind are about a topic; the deletion of one is not filtered."""
    return kind != TOPIC_DELETED and "topic" in _columns(kind, own)


def duckdb_events(connection: "duckdb.DuckDBPyConnection", runs: Runs) -> None:
    """Create the view of all events, with all columns."""
    names = event_schema().names
    parts = [
        f"SELECT * FROM {source} WHERE {condition}"
        for groups in file_groups(runs.manifests).values()
        for source, condition in _sources(connection, runs.root, groups)
    ]
    every = " UNION ALL BY NAME ".join([*parts, _no_events()])
    connection.execute(
        f"CREATE OR REPLACE VIEW {EVENTS_VIEW} AS SELECT {', '.join(map(_name, names))} "
        f"FROM ({every})"
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
    for family, groups in file_groups(runs.manifests).items():
        names[family] = f"family_{family}"
        rows = " UNION ALL ".join(
            f"SELECT * FROM {source} WHERE {condition}"
            for source, condition in _sources(connection, runs.root, groups)
        )
        connection.execute(f"CREATE TABLE IF NOT EXISTS {names[family]} AS {rows}")
    return names


def _sources(
    connection: "duckdb.DuckDBPyConnection", root: Place, groups: Sequence[FileGroup]
) -> Iterator[tuple[str, str]]:
    """Yield what DuckDB reads, and the condition for the wanted rows. Remote files reach DuckDB
    through pyarrow, which needs no extension that must be downloaded.
    """
    for group in groups:
        condition = "true" if group.runs is None else _is_one_of(group.runs)
        if root.is_local:
            listed = ", ".join(_quoted(str(root / file.path)) for file in group.files)
            yield f"read_parquet([{listed}], hive_partitioning = false)", condition
        else:
            name = f"remote_{sha256(repr((str(root), group.files)).encode()).hexdigest()[:16]}"
            connection.register(name, scan(root, group.files))
            yield name, condition


def _is_one_of(runs: Iterable[str]) -> str:
    return f"run IN ({', '.join(map(_quoted, runs))})"


def make_views(
    spark: "SparkSession",
    runs: Runs,
    kinds: Iterable[str] = tuple(KINDS),
    *,
    is_small: bool = False,
    own: Own = NO_OWN,
    for_invariants: bool = False,
) -> None:
    """Create the view of each kind in Spark; they replace those of other runs. `for_invariants` is
    as in `duckdb_views`.

    Each view reads only its own few columns, and that of a kind that does not occur nothing:
    planning over all columns of all kinds takes Spark longer than the execution. With `is_small`
    the events are read once and cached; those of a remote dataset always.
    """
    filters = for_invariants and TOPIC_DELETED in runs.kinds
    for kind in _deletions_first(kinds) if filters else kinds:
        view = frame_of(spark, runs, kind, own)
        if filters and _has_topic(kind, own) and runs.groups(kind):
            view.createOrReplaceTempView(f"every_{view_name(kind)}")
            view = spark.sql(
                f"SELECT * FROM every_{view_name(kind)} AS every WHERE {not_ambiguous('every')}"
            )
        if is_small and kind in runs.kinds:
            view = view.coalesce(1).cache()
        elif not runs.root.is_local and kind in runs.kinds:
            view = view.cache()
        view.createOrReplaceTempView(view_name(kind))


def frame_of(spark: "SparkSession", runs: Runs, kind: str, own: Own = NO_OWN) -> "DataFrame":
    """Return the events of a kind as a frame of Spark, with the columns of its view."""
    groups = runs.groups(kind)
    columns = _columns(kind, own)
    if not groups:
        return spark.sql(_empty(kind, own, is_spark=True))
    names = ("run", *columns, "kind")
    frame = _union(_frame(spark, runs.root, group, names, kind) for group in groups)
    fields = [
        f"CAST(get_json_object({EXTRA}, '$.{name}') AS {_spark_type(form)}) AS {name}"
        for name, form in own.get(kind, {}).items()
    ]
    return frame.selectExpr("run" if runs.are_many else f"'{ONE_RUN}' AS run", *columns, *fields)


def all_events(spark: "SparkSession", runs: Runs) -> "DataFrame":
    """Return all events with all columns as a frame of Spark."""
    names = tuple(event_schema().names)
    groups = [group for found in file_groups(runs.manifests).values() for group in found]
    if not groups:
        return spark.createDataFrame([], _struct(names))
    return _union(_frame(spark, runs.root, group, names) for group in groups)


def _union(frames: "Iterable[DataFrame]") -> "DataFrame":
    return reduce(lambda one, other: one.union(other), frames)


def _frame(
    spark: "SparkSession", root: Place, group: FileGroup, names: Sequence[str], kind: str = ""
) -> "DataFrame":
    """Return columns of the wanted rows of some files. What the files do not have is null."""
    if not root.is_local:
        return _frame_by_python(spark, root, group, names, kind)
    frame = (
        spark.read.schema(_struct(names))
        .option("recursiveFileLookup", "true")
        .parquet(*((root / file.path).hadoop for file in group.files))
    )
    if kind:
        frame = frame.where(f"kind = '{kind}'")
    return frame if group.runs is None else frame.where(_is_one_of(group.runs))


def _frame_by_python(
    spark: "SparkSession", root: Place, group: FileGroup, names: Sequence[str], kind: str
) -> "DataFrame":
    """Return the same of remote files: tasks of Spark read them with pyarrow.

    Spark itself needs jars for most stores, hundreds of megabytes for S3, and settings of its own.
    Workers take endpoint and credentials from their environment.
    """
    address = str(root)
    where = rows_of(group) & (pc.field("kind") == kind if kind else pc.scalar(True))
    wanted = pa.schema([event_schema().field(name) for name in names])
    files = pa.table({"file": [msgspec.json.encode(file) for file in group.files]})
    frame = spark.createDataFrame(files).repartition(len(group.files))

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for encoded in batch.column("file").to_pylist():
                file = msgspec.json.decode(encoded, type=DataFile)
                there = [name for name in names if name in family_schema(file.family).names]
                found = scan(place_of(address), [file]).to_batches(columns=there, filter=where)
                for rows in found:
                    yield _with_all_columns(rows, wanted)

    return frame.mapInArrow(read, _struct(names))


def _with_all_columns(rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    there = set(rows.schema.names)
    columns = [
        rows.column(field.name) if field.name in there else pa.nulls(rows.num_rows, field.type)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _selected(runs: Runs) -> str:
    return "event.run" if runs.are_many else f"'{ONE_RUN}' AS run"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _empty(kind: str, own: Own, *, is_spark: bool = False) -> str:
    """Return a query without rows that has the columns of a kind."""
    schema = event_schema()
    forms = {name: _SQL_TYPES[schema.field(name).type] for name in ("run", *_columns(kind, own))}
    forms |= own.get(kind, {})
    names = ", ".join(
        f"CAST(NULL AS {_spark_type(form) if is_spark else form}) AS {name}"
        for name, form in forms.items()
    )
    return f"SELECT {names} WHERE 1 = 0"


def _spark_type(form: str) -> str:
    return "STRING" if form == "VARCHAR" else form


def _struct(names: Iterable[str]) -> "StructType":
    from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

    types = {pa.int64(): LongType(), pa.string(): StringType(), pa.bool_(): BooleanType()}
    schema = event_schema()
    return StructType([StructField(name, types[schema.field(name).type]) for name in names])


def columns_of_view(kind: str, own: Own = NO_OWN) -> tuple[str, ...]:
    """Return the columns of the view of a kind, beside `run`."""
    return (*_columns(kind, own), *own.get(kind, {}))


def _columns(kind: str, own: Own) -> tuple[str, ...]:
    """Return the columns of a kind in the files: those of a kind that is not kraftsim's without its
    fields, which are in `extra`.
    """
    return (
        POSITION,
        LAMPORT,
        CAUSE_POSITION,
        EXTRA,
        *(name for name in ENVELOPE_COLUMNS if name not in ("kind", "run")),
        *(() if kind in own else fields_of(kind)),
    )
