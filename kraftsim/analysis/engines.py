"""The two engines that run the SQL: Spark, and DuckDB for small runs without a JVM.

Both get the same texts over the same views, and the tests hold their results against each other.
"""

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraftsim.analysis.session import SparkOptions, spark_session
from kraftsim.analysis.views import Runs, duckdb_views, make_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_RUN_EVENTS_MAX: Final = 50_000
"""Up to so many events, starting Java takes longer than the queries."""
LARGE_RUN_EVENTS_MIN: Final = 2_000_000
"""From so many events on, Java's optimising compiler pays."""
Cells = tuple[Any, ...]
"""A row of a result: texts, numbers, truth values and nulls, as its query selects them."""


Answered = Callable[[], None]


def nothing() -> None:
    """Ignore that a query was answered."""


class Engine(StrEnum):
    """The value of `--engine`."""

    AUTO = "auto"
    SPARK = "spark"
    DUCKDB = "duckdb"


class Queries(Protocol):
    """Runs queries over the views of some runs."""

    def ask(
        self, queries: Sequence[str], kinds: Iterable[str], answered: Answered = nothing
    ) -> list[Cells]:
        """Return the rows of all queries, which read the views of these kinds. `answered` is called
        after each query.
        """
        ...


SETTINGS: Final = {
    "spark.sql.adaptive.enabled": ("false", "true"),
    "spark.sql.codegen.wholeStage": ("false", "true"),
    "spark.sql.codegen.factoryMode": ("NO_CODEGEN", "FALLBACK"),
    "spark.sql.autoBroadcastJoinThreshold": ("-1", "10485760"),
}
"""Settings for small runs and for large ones: below so many events, the optimisations cost more
than the query.
"""


class SparkQueries:
    """Spark. Its views stay until they are replaced by those of other runs."""

    def __init__(self, spark: "SparkSession", runs: Runs) -> None:
        self._spark, self._runs = spark, runs
        self._is_small = runs.event_count <= SMALL_RUN_EVENTS_MAX
        self._cores = _cores(spark)
        self._kinds: set[str] = set()
        if self._is_small:
            spark.catalog.clearCache()  # of the views of former runs

    def ask(
        self, queries: Sequence[str], kinds: Iterable[str], answered: Answered = nothing
    ) -> list[Cells]:
        """Run several queries at a time, because one thread plans each."""
        for key, (small, large) in SETTINGS.items():
            self._spark.conf.set(key, small if self._is_small else large)
        self._spark.conf.set(
            "spark.sql.shuffle.partitions",
            "1" if self._is_small and not self._runs.are_many else str(max(2, self._cores)),
        )
        missing = sorted(set(kinds) - self._kinds)
        make_views(self._spark, self._runs, missing, is_small=self._is_small)
        self._kinds.update(missing)

        def rows_of(query: str) -> list[Cells]:
            # Every task receives the plan of the whole query, and deserialising it takes longer
            # than the work: so there are few tasks.
            partitions = 1 if self._is_small else max(2, self._cores)
            rows = [tuple(row) for row in self._spark.sql(query).coalesce(partitions).collect()]
            answered()
            return rows

        with ThreadPoolExecutor(self._cores) as asking:
            return [row for rows in asking.map(rows_of, queries) for row in rows]


def _cores(spark: "SparkSession") -> int:
    """Return how many tasks run at a time; 2 where Spark Connect does not say it."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context, and says so by various exceptions
        return 2


class DuckdbQueries:
    """DuckDB, in this process."""

    def __init__(self, runs: Runs, threads: int | None = None) -> None:
        import duckdb

        settings: dict[str, str | bool | int | float | list[str]] = (
            {} if threads is None else {"threads": threads}
        )
        self._connection = duckdb.connect(config=settings)
        self._runs = runs
        self._kinds: set[str] = set()

    def ask(
        self, queries: Sequence[str], kinds: Iterable[str], answered: Answered = nothing
    ) -> list[Cells]:
        """Run one query after the other; each uses all cores."""
        missing = sorted(set(kinds) - self._kinds)
        is_small = self._runs.event_count <= SMALL_RUN_EVENTS_MAX
        duckdb_views(self._connection, self._runs, missing, as_tables=is_small)
        self._kinds.update(missing)
        rows: list[Cells] = []
        for query in queries:
            rows += self._connection.execute(query).fetchall()
            answered()
        return rows


def chosen(engine: Engine, event_count: int, options: SparkOptions) -> Engine:
    """Return the engine for `auto`: DuckDB for a small run if it is installed and no cluster is
    asked for.
    """
    if engine is not Engine.AUTO:
        return engine
    is_small = event_count <= SMALL_RUN_EVENTS_MAX
    has_duckdb = importlib.util.find_spec("duckdb") is not None
    return Engine.DUCKDB if is_small and has_duckdb and not options.is_asked else Engine.SPARK


@contextmanager
def opened(
    runs: Runs,
    engine: Engine = Engine.AUTO,
    options: SparkOptions | None = None,
    spark: "SparkSession | None" = None,
) -> Iterator[Queries]:
    """Yield an engine over the views of runs. With `spark`, that session is used.

    Raises JavaMissing if Spark is needed and cannot start.
    """
    options = options or SparkOptions()
    if spark is not None and engine is not Engine.DUCKDB:
        yield SparkQueries(spark, runs)
    elif chosen(engine, runs.event_count, options) is Engine.DUCKDB:
        yield DuckdbQueries(runs)
    else:
        is_large = runs.event_count > LARGE_RUN_EVENTS_MIN
        with spark_session(options, is_large=is_large) as session:
            yield SparkQueries(session, runs)
