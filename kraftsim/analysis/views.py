"""One view per event kind over an ingested run: the tables that the SQL of invariants and ad-hoc
queries use.

The texts are limited to SQL that Spark and DuckDB share, so that the tests can run the same queries
on both.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kraftsim.analysis.columns import (
    CAUSE_POSITION,
    ENVELOPE_COLUMNS,
    EXTRA,
    LAMPORT,
    POSITION,
    fields_of,
    view_name,
)
from kraftsim.events.catalogue import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS_VIEW: Final = "events"
ONE_RUN: Final = ""
"""The value of `run` in the views of a single run."""


def view_queries(
    kinds: Iterable[str] = tuple(KINDS), *, are_many: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield name and SELECT of the view of each kind, over the view of all events: position in the
    run, envelope, and the kind's own fields.

    Only where the events `are_many` runs does `run` distinguish them; those of one directory are
    one run, whatever their lines contain.
    """
    for kind in kinds:
        selected = ", ".join(
            (_run(are_many=are_many), *(f"event.{name}" for name in _columns(kind)))
        )
        yield (
            view_name(kind),
            f"SELECT {selected} FROM {EVENTS_VIEW} AS event WHERE event.kind = '{kind}'",
        )


def make_views(
    spark: "SparkSession",
    parquet: str,
    kinds: Iterable[str] = tuple(KINDS),
    *,
    are_many: bool = False,
    is_small: bool = False,
) -> set[str]:
    """Create the view of all events of a Parquet file or directory, and those of the kinds, as
    defined by `view_queries`.

    They replace those of another run. Returns the kinds that occur. Each view reads only its own
    few columns, and that of a kind that does not occur nothing: planning over all columns of all
    kinds takes Spark longer than the execution. With `is_small` the events are read once and
    cached.
    """
    from pyspark.sql.types import StructType

    events = spark.read.parquet(parquet)
    events.createOrReplaceTempView(EVENTS_VIEW)
    kinds_found = {
        row.kind for row in spark.sql(f"SELECT DISTINCT kind FROM {EVENTS_VIEW}").collect()
    }
    if is_small:
        spark.catalog.clearCache()
    for kind in kinds:
        columns = _columns(kind)
        wanted = {*columns, "kind", "run"}
        narrow = spark.read.schema(
            StructType([field for field in events.schema.fields if field.name in wanted])
        ).parquet(parquet)
        view = narrow.alias("event").where(
            f"event.kind = '{kind}'" if kind in kinds_found else "FALSE"
        )
        view = view.selectExpr(_run(are_many=are_many), *(f"event.{name}" for name in columns))
        (
            view.coalesce(1).cache() if is_small and kind in kinds_found else view
        ).createOrReplaceTempView(view_name(kind))
    return kinds_found


def _run(*, are_many: bool) -> str:
    return "event.run" if are_many else f"'{ONE_RUN}' AS run"


def _columns(kind: str) -> tuple[str, ...]:
    return (
        POSITION,
        LAMPORT,
        CAUSE_POSITION,
        EXTRA,
        *(name for name in ENVELOPE_COLUMNS if name not in ("kind", "run")),
        *fields_of(kind),
    )
