"""Queries over the views of some runs, and the two systems that run their SQL: DuckDB in this
process, and Spark SQL.

Both get the same texts over the same views, and the tests hold their results against each other.
`query_tasks` has Spark distribute queries that DuckDB runs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kraftsim.analysis.views import Runs, duckdb_views, make_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_RUN_EVENTS_MAX: Final = 50_000
"""Up to so many events, starting Java takes longer than the queries."""
Cells = tuple[Any, ...]
"""A row of a result: texts, numbers, truth values and nulls, as its query selects them."""


Answered = Callable[[], None]


def nothing() -> None:
    """Ignore that a query was answered."""


class Query(NamedTuple):
    """One SELECT, and the kinds of events whose views it reads.

    `own` are the fields of those kinds that are not kraftsim's: see
    `kraftsim.analysis.columns.own_fields`.
    """

    sql: str
    kinds: tuple[str, ...]
    own: dict[str, dict[str, str]] = {}  # noqa: RUF012  (a default of a NamedTuple, never changed)


class Queries(Protocol):
    """Runs queries over the views of some runs."""

    def ask(self, queries: Sequence[Query], answered: Answered = nothing) -> list[Cells]:
        """Return the rows of all queries, which have the same columns, in the order of the queries.

        `answered` is called once for each query.
        """
        ...


def kinds_of(queries: Iterable[Query]) -> list[str]:
    """Return the kinds that some of the queries read, sorted."""
    return sorted({kind for query in queries for kind in query.kinds})


def own_of(queries: Iterable[Query]) -> dict[str, dict[str, str]]:
    """Return the fields of kinds that are not kraftsim's, of all queries."""
    return {kind: fields for query in queries for kind, fields in query.own.items()}


def _joined(queries: Sequence[Query]) -> Iterator[tuple[str, int]]:
    """Yield queries joined to a few larger ones, each with the number of queries in it."""
    part: list[str] = []
    for query in queries:
        if part and sum(map(len, part)) + len(query.sql) > JOINED_LETTERS_MAX:
            yield "\nUNION ALL\n".join(part), len(part)
            part = []
        part.append(query.sql)
    if part:
        yield "\nUNION ALL\n".join(part), len(part)


JOINED_LETTERS_MAX: Final = 10_000
"""The length of queries that Spark SQL plans together: the cost of a plan grows faster than its
length, and one thread makes it.
"""
SETTINGS: Final = {
    "spark.sql.adaptive.enabled": ("false", "true"),
    "spark.sql.codegen.wholeStage": ("false", "true"),
    "spark.sql.codegen.factoryMode": ("NO_CODEGEN", "FALLBACK"),
    "spark.sql.autoBroadcastJoinThreshold": ("-1", "10485760"),
}
"""Settings for small runs and for large ones: below so many events, the optimisations cost more
than the query.
"""


class SparkSqlQueries:
    """Spark SQL. Its views stay until they are replaced by those of other runs."""

    def __init__(self, spark: "SparkSession", runs: Runs) -> None:
        self._spark, self._runs = spark, runs
        self._is_small = runs.event_count <= SMALL_RUN_EVENTS_MAX
        self._cores = cores_of(spark)
        self._kinds: set[str] = set()
        if self._is_small:
            spark.catalog.clearCache()  # of the views of former runs

    def ask(self, queries: Sequence[Query], answered: Answered = nothing) -> list[Cells]:
        """Run several queries at a time, because one thread plans each."""
        for key, (small, large) in SETTINGS.items():
            self._spark.conf.set(key, small if self._is_small else large)
        self._spark.conf.set(
            "spark.sql.shuffle.partitions",
            "1" if self._is_small and not self._runs.are_many else str(max(2, self._cores)),
        )
        missing = [kind for kind in kinds_of(queries) if kind not in self._kinds]
        make_views(
            self._spark,
            self._runs,
            missing,
            is_small=self._is_small,
            own=own_of(queries),
            for_invariants=True,
        )
        self._kinds.update(missing)

        def rows_of(joined: tuple[str, int]) -> list[Cells]:
            query, count = joined
            # Every task receives the plan of the whole query, and deserialising it takes longer
            # than the work: so there are few tasks.
            partitions = 1 if self._is_small else max(2, self._cores)
            rows = [tuple(row) for row in self._spark.sql(query).coalesce(partitions).collect()]
            for _ in range(count):
                answered()
            return rows

        with ThreadPoolExecutor(self._cores) as asking:
            return [row for rows in asking.map(rows_of, _joined(queries)) for row in rows]


def cores_of(spark: "SparkSession") -> int:
    """Return the number of cores of all executors; over Spark Connect the number of parts into
    which Spark cuts a range by itself, which is the same.
    """
    if is_connect(spark):
        from pyspark.sql.functions import spark_partition_id

        return max(1, spark.range(1 << 16).select(spark_partition_id()).distinct().count())
    return max(1, spark.sparkContext.defaultParallelism)


def is_connect(spark: "SparkSession") -> bool:
    """Return whether a session is a client of Spark Connect, which has no Spark context."""
    return not hasattr(spark, "_jsparkSession")


class DuckdbLimits(NamedTuple):
    """What DuckDB may use: threads, memory, and the directory for what exceeds it. None: what
    DuckDB takes by itself, all cores and 80 % of the memory.
    """

    threads: int | None = None
    memory_mib: int | None = None
    spill_to: Path | None = None

    @property
    def settings(self) -> dict[str, str | bool | int | float | list[str]]:
        """The settings of a connection. Rows need no order but that of their query."""
        found: dict[str, str | bool | int | float | list[str]] = {"preserve_insertion_order": False}
        if self.threads is not None:
            found["threads"] = self.threads
        if self.memory_mib is not None:
            found["memory_limit"] = f"{self.memory_mib}MiB"
        if self.spill_to is not None:
            found["temp_directory"] = str(self.spill_to)
        return found


NO_LIMITS: Final = DuckdbLimits()


class DuckdbQueries:
    """DuckDB, in this process. A context manager, where its memory must not stay."""

    def __init__(self, runs: Runs, limits: DuckdbLimits = NO_LIMITS) -> None:
        import duckdb

        self._connection = duckdb.connect(config=limits.settings)
        self._runs = runs
        self._kinds: set[str] = set()

    def __enter__(self) -> "DuckdbQueries":
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def ask(self, queries: Sequence[Query], answered: Answered = nothing) -> list[Cells]:
        """Run one query after the other; each uses all threads."""
        missing = [kind for kind in kinds_of(queries) if kind not in self._kinds]
        is_small = self._runs.event_count <= SMALL_RUN_EVENTS_MAX
        duckdb_views(
            self._connection,
            self._runs,
            missing,
            as_tables=is_small,
            own=own_of(queries),
            for_invariants=True,
        )
        self._kinds.update(missing)
        rows: list[Cells] = []
        for query in queries:
            rows += self._connection.execute(query.sql).fetchall()
            answered()
        return rows
