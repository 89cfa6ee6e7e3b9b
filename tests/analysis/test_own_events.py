"""Events that a file of a user defines: an invariant sees them online and in SQL, and the tables of
a run have a view of them.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kraftsim.analysis.access import open_run
from kraftsim.analysis.ingest import ingest_run
from kraftsim.analysis.queries import Queries, SparkSqlQueries
from kraftsim.analysis.query_tasks import SparkTaskQueries
from kraftsim.analysis.verdicts import VIOLATION, Row, find_rows
from kraftsim.analysis.views import one_run
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Outcome, Verdict, Violation
from kraftsim.lab.explore.over_sockets import read_events
from kraftsim.testing.histories import check_events, write_events
from tests.analysis.oracle_by_duckdb import rows_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ParcelSent(Event):
    """An order of the shop left the house."""

    order: int
    carrier: str | None = None
    is_express: bool = False
    weight: float | None = None
    sizes: tuple[int, ...] = ()


class Unseen(Event):
    """Never happens in these histories."""

    order: int


class Check:
    """No order is shipped twice."""

    def __init__(self) -> None:
        self._findings = Findings("shipped-once")
        self._first: dict[int, str] = {}

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Look at one shipment."""
        assert isinstance(event, ParcelSent)
        self._findings.examined += 1
        first = self._first.setdefault(event.order, envelope.event_id)
        if first == envelope.event_id:
            return None
        return self._findings.violation(str(event.order), "twice", first, envelope.event_id)

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


INVARIANT = Invariant(
    name="shipped-once",
    rule="No order is shipped twice.",
    source="the shop",
    watches=(ParcelSent, Unseen),
    check=Check,
    examined="SELECT run, count(*) FROM parcel_sent GROUP BY run",
    violations="""
        SELECT
            s.run,
            concat('', s.order) AS key,
            'twice' AS message,
            min(s.position) AS first_witness,
            max(s.position) AS second_witness
        FROM parcel_sent s
        LEFT JOIN unseen u ON u.run = s.run AND u.order = s.order
        WHERE u.order IS NULL AND NOT (s.is_express AND s.carrier IS NULL)
        GROUP BY s.run, s.order
        HAVING count(*) > 1
    """,
)
HISTORY: list[tuple[str, Event]] = [
    ("shop-1", ParcelSent(order=7)),
    ("shop-1", ParcelSent(order=8, carrier="by bike", is_express=True)),
    ("shop-2", ParcelSent(order=7, carrier="by 'cart'", weight=0.5, sizes=(1, 2))),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of a run with these events."""
    return write_events(HISTORY, tmp_path / "run")


def violated(rows: list[Row]) -> list[tuple[str | None, tuple[int, ...]]]:
    """Return the keys and witnesses of violations."""
    return [(row.key, row.positions) for row in rows if row.what == VIOLATION]


def test_an_own_event_is_checked_online_and_in_the_files_of_a_run(run: Path) -> None:
    assert check_events(INVARIANT, HISTORY).outcome is Outcome.VIOLATED
    assert [event for _, event in read_events(run / "events")] == [event for _, event in HISTORY]


def test_an_own_event_is_a_view_in_duckdb(run: Path) -> None:
    rows = rows_by_duckdb(ingest_run(run).parquet, [INVARIANT])
    assert violated(rows) == [("7", (0, 2))]
    wanted = "o.order, carrier, is_express, weight, sizes"
    shown = open_run(run).sql(f"SELECT {wanted} FROM parcel_sent o ORDER BY position")
    assert [tuple(row.values()) for row in shown.to_pylist()] == [
        (7, None, False, None, "[]"),
        (8, "by bike", True, None, "[]"),
        (7, "by 'cart'", False, 0.5, "[1,2]"),
    ]


@pytest.mark.spark
@pytest.mark.parametrize("kind", [SparkSqlQueries, SparkTaskQueries])
def test_an_own_event_is_a_view_in_spark(
    run: Path, spark: "SparkSession", kind: type[SparkSqlQueries] | type[SparkTaskQueries]
) -> None:
    """In tasks, too, whose processes do not have the file that defines it."""
    runs = one_run(ingest_run(run).parquet)
    queries: Queries = kind(spark, runs)
    assert violated(find_rows(queries, runs, [INVARIANT])) == [("7", (0, 2))]
