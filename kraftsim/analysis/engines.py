"""Which engine runs the SQL: DuckDB in this process, tasks of Spark that run DuckDB, or Spark SQL.

All get the same texts over the same files, and the tests hold their results against each other.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kraftsim.analysis.queries import (
    SMALL_RUN_EVENTS_MAX,
    DuckdbQueries,
    Queries,
    SparkSqlQueries,
)
from kraftsim.analysis.query_tasks import SparkTaskQueries
from kraftsim.analysis.session import SparkOptions, spark_session
from kraftsim.analysis.views import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE_RUN_EVENTS_MIN: Final = 2_000_000
"""From so many events on, Java's optimising compiler pays for Spark SQL."""


class Engine(StrEnum):
    """The value of `--engine`."""

    AUTO = "auto"
    DUCKDB = "duckdb"
    SPARK = "spark"
    SPARK_SQL = "spark-sql"


def chosen(engine: Engine, event_count: int, options: SparkOptions) -> Engine:
    """Return the engine for `auto`: DuckDB in this process for a small run unless a Spark is asked
    for, else Spark. Without DuckDB, Spark SQL.
    """
    if engine is not Engine.AUTO:
        return engine
    if importlib.util.find_spec("duckdb") is None:
        return Engine.SPARK_SQL
    is_small = event_count <= SMALL_RUN_EVENTS_MAX
    return Engine.DUCKDB if is_small and not options.is_asked else Engine.SPARK


def on_spark(spark: "SparkSession", runs: Runs, engine: Engine) -> Queries:
    """Return queries over the views of runs in a session of Spark."""
    return (
        SparkSqlQueries(spark, runs)
        if engine is Engine.SPARK_SQL
        else SparkTaskQueries(spark, runs)
    )


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
    picked = chosen(engine, runs.event_count, options)
    if spark is not None and engine is not Engine.DUCKDB:
        yield on_spark(spark, runs, picked)
    elif picked is Engine.DUCKDB:
        yield DuckdbQueries(runs)
    else:
        is_large = picked is Engine.SPARK_SQL and runs.event_count > LARGE_RUN_EVENTS_MIN
        with spark_session(options, is_large=is_large) as session:
            yield on_spark(session, runs, picked)
