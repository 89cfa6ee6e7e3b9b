"""A run with two metadata logs: invariants of one log compare nothing across them, those of the
cluster do, in both forms.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from kraftsim.analysis.queries import SparkSqlQueries
from kraftsim.analysis.query_tasks import SparkTaskQueries
from kraftsim.analysis.verdicts import by_run, find_rows
from kraftsim.events.runs import MetadataLogBegun
from kraftsim.invariants.invariant import INVARIANTS, Oracle
from kraftsim.invariants.metadata_log import SUFFIX
from kraftsim.invariants.verdict import Outcome
from tests.analysis.cases import CASES, Case
from tests.analysis.event_factories import allocated, elected, returned
from tests.analysis.history import History, LoggedEvent
from tests.analysis.migration_cases import add_controller_events, broker_elected, claimed
from tests.analysis.oracle_by_duckdb import as_one, rows_of_all_by_duckdb
from tests.analysis.test_invariants import (
    EveryVerdict,
    add_quorum_events,
    directories,
    online,
    random_history,
    sql_results_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_ONE_LOG = frozenset(each.name for each in INVARIANTS.all() if each.within_metadata_log)
RISE = "controller-epochs-rise"
ROWS = [case for case in CASES if case.invariant in OF_ONE_LOG and not case.between_ms]

VIOLATING = {case.invariant: case for case in ROWS if case.outcome is Outcome.VIOLATED}
"""A row of each invariant."""


def begun(metadata_log: int = 2) -> list[LoggedEvent]:
    """A new quorum is formatted."""
    event = MetadataLogBegun(metadata_log=metadata_log, controllers="a,b")
    return [("harness", event)]


def repeated(case: Case) -> History:
    """Return the events of a row in a first log, and the same in a second and in a third."""
    events = [*case.events, *begun(), *case.events, *begun(3), *case.events]
    return case._replace(events=events).history()


def history_of(*events: LoggedEvent) -> History:
    """Return the events with envelopes."""
    return Case("", "", list(events), Outcome.OK, 0).history()


def random_logs(seed: int) -> History:
    """Return a random history with one, two or three metadata logs at its end."""
    random = Random(seed)
    careless = random.choice((0.0, 0.02, 0.3))
    history = random_history(seed)

    def slip() -> bool:
        return random.random() < careless

    for metadata_log in range(2, 2 + random.randrange(3)):
        history.emit("harness", MetadataLogBegun(metadata_log=metadata_log, controllers="a"))
        add_quorum_events(history, random, slip)
        add_controller_events(history, random, slip)
    return history


@pytest.mark.parametrize("case", ROWS, ids=lambda case: f"{case.invariant}: {case.name}")
def test_each_log_is_checked_by_itself(case: Case) -> None:
    """The events of one log, repeated in another, violate as often as alone."""
    alone = online(case.history())[case.invariant]
    verdict = online(repeated(case))[case.invariant]
    assert verdict.outcome is alone.outcome
    assert verdict.examined == 3 * alone.examined
    assert verdict.violation_count == 3 * alone.violation_count
    keys = sorted(
        f"{each.key.rsplit('.', 1)[0]}" for each in verdict.violations if SUFFIX not in each.key
    )
    assert keys == sorted(each.key.rsplit(".", 1)[0] for each in alone.violations)
    assert len({each.key for each in verdict.violations}) == len(verdict.violations)


@pytest.mark.parametrize(
    "case",
    [case for case in ROWS if case.outcome is Outcome.VIOLATED],
    ids=lambda case: f"{case.invariant}: {case.name}",
)
def test_examiners_of_a_simulation_check_each_log_by_itself(case: Case) -> None:
    """Those pass events to a check directly while there is one log."""
    history, oracle = repeated(case), Oracle()
    examiners = {kind: oracle.examiner(kind, lambda violation: None) for kind in oracle.kinds}
    for envelope, event in history.events:
        if oracle.watches(event):
            examiners[type(event)](
                envelope.node, envelope.incarnation, envelope.n, envelope.t_ns, event
            )
    found = {verdict.invariant: verdict for verdict in oracle.finish()}[case.invariant]
    expected = online(history)[case.invariant]
    assert (found.outcome, found.examined) == (expected.outcome, expected.examined)
    keys, expected_keys = (
        sorted(each.key for each in verdict.violations) for verdict in (found, expected)
    )
    assert keys == expected_keys and any(SUFFIX in key for key in keys)


@pytest.fixture(scope="module")
def sql_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EveryVerdict]:
    """Return the SQL results of all histories of this file, from one query over all."""
    return sql_results_of(HISTORIES, tmp_path_factory.mktemp("logs"))


HISTORIES: Sequence[History] = [
    *(repeated(case) for case in VIOLATING.values()),
    *(random_logs(seed) for seed in range(12)),
    history_of(*begun(), ("a", returned(5)), ("b", returned(5))),
]


@pytest.mark.parametrize("number", range(len(HISTORIES)))
def test_sql_agrees_with_the_checks(number: int, sql_results: dict[str, EveryVerdict]) -> None:
    """The same outcome, count, keys, messages and evidence."""
    assert sql_results[f"run-{number}"] == online(HISTORIES[number])


def test_without_the_event_two_logs_look_like_one() -> None:
    """What the tests above would not show: that the rows contradict each other."""
    as_one_log = {
        case.invariant
        for case in ROWS
        if case.outcome is Outcome.OK
        and online(case._replace(events=[*case.events, *case.events]).history())[
            case.invariant
        ].violation_count
    }
    assert as_one_log >= {
        "flushed-metadata-has-origin",
        "flushed-metadata-retained",
        "high-watermark-monotonic",
        "metadata-log-contiguous",
        "quorum-state-restored",
        "snapshots-have-new-records",
    }


def test_one_epoch_of_each_log_has_a_leader_of_its_own() -> None:
    """Epoch 1 of the second log belongs to another controller."""
    first, second = ("a", elected(1)), ("b", elected(1))
    apart = online(history_of(first, *begun(), second))["one-leader-per-epoch"]
    together = online(history_of(first, second))["one-leader-per-epoch"]
    assert (apart.outcome, together.outcome) == (Outcome.OK, Outcome.VIOLATED)


@pytest.mark.parametrize(
    ("invariant", "events", "outcome"),
    [
        ("producer-id-unique", [("a", returned(5)), *begun(), ("a", returned(5))], "violated"),
        (
            "producer-id-blocks-disjoint",
            [("a", allocated(0, 10)), *begun(), ("a", allocated(0, 10))],
            "violated",
        ),
        (
            "next-producer-id-monotonic",
            [("a", allocated(50, 60)), *begun(), ("a", allocated(0, 10))],
            "violated",
        ),
        (RISE, [("a", claimed(5)), *begun(), ("a", claimed(6))], "ok"),
        (RISE, [("a", claimed(5)), *begun(), ("a", claimed(5))], "violated"),
        (RISE, [("b", broker_elected(5)), *begun(), ("a", claimed(1))], "violated"),
        (RISE, [("b", broker_elected(5)), ("a", claimed(1))], "ok"),
    ],
)
def test_what_holds_across_logs(
    invariant: str, events: list[LoggedEvent], outcome: str, tmp_path: Path
) -> None:
    """Producer ids are given once in the life of a cluster, and controller epochs rise."""
    history = history_of(*events)
    assert online(history)[invariant].outcome == outcome
    found = sql_results_of([history], tmp_path)["run-0"]
    assert found[invariant] == online(history)[invariant]


@pytest.mark.spark
@pytest.mark.interop
def test_spark_agrees_with_duckdb(spark: "SparkSession", tmp_path: Path) -> None:
    """Both engines see each metadata log as a run of its own."""
    runs = as_one(
        directories([random_logs(seed) for seed in (0, 3, 5)], tmp_path), tmp_path / "all"
    )
    expected = {
        run: Counter(rows) for run, rows in rows_of_all_by_duckdb(runs, INVARIANTS.all()).items()
    }
    for queries in (SparkSqlQueries(spark, runs), SparkTaskQueries(spark, runs)):
        found = by_run(find_rows(queries, runs, INVARIANTS.all()))
        assert {run: Counter(rows) for run, rows in found.items()} == expected
