"""One view per event kind over an ingested run: the tables that invariants, and anyone with a question, write SQL against.

The texts keep to SQL that Spark and DuckDB share, so that the tests can ask both the same questions.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kraftsim.analysis.columns import CAUSE_POSITION, ENVELOPE_COLUMNS, EXTRA, LAMPORT, POSITION, fields_of, view_name
from kraftsim.events.catalogue import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS_VIEW: Final = "events"
ONE_RUN: Final = ""
"""What `run` says in the views of a single run."""


def view_queries(kinds: Iterable[str] = tuple(KINDS), *, are_many: bool = False) -> Iterator[tuple[str, str]]:
    """Yield name and SELECT of the view of each kind, over the view of all events: place in the run, envelope, and the kind's own fields.

    Only where the events `are_many` runs does `run` tell them apart; those of one directory are one run, whatever their lines say.
    """
    run = "event.run" if are_many else f"'{ONE_RUN}' AS run"
    for kind in kinds:
        columns = [POSITION, LAMPORT, CAUSE_POSITION, EXTRA, *(name for name in ENVELOPE_COLUMNS if name not in ("kind", "run")), *fields_of(kind)]
        selected = ", ".join((run, *(f"event.{name}" for name in columns)))
        yield view_name(kind), f"SELECT {selected} FROM {EVENTS_VIEW} AS event WHERE event.kind = '{kind}'"


def make_views(spark: "SparkSession", parquet: str, kinds: Iterable[str] = tuple(KINDS), *, are_many: bool = False) -> None:
    """Make the view of all events of a Parquet file or directory, and those of the kinds; they replace the ones of another run."""
    spark.read.parquet(parquet).createOrReplaceTempView(EVENTS_VIEW)
    for name, query in view_queries(kinds, are_many=are_many):
        spark.sql(query).createOrReplaceTempView(name)
