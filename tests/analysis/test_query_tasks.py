"""Queries as tasks of Spark: how they are distributed, and that their rows are those of one DuckDB.

`test_invariants` has the same comparison in Spark itself.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from kraftsim.analysis import query_tasks
from kraftsim.analysis.queries import (
    Answered,
    Cells,
    DuckdbLimits,
    DuckdbQueries,
    Query,
    nothing,
)
from kraftsim.analysis.query_tasks import QueryTask, TaskAnswer, answer_task, tasks_of
from kraftsim.analysis.verdicts import find_rows
from kraftsim.analysis.views import Runs
from kraftsim.analysis.workers import SparkWorkers
from kraftsim.invariants.invariant import INVARIANTS
from tests.analysis.oracle_by_duckdb import as_one
from tests.analysis.test_invariants import directories, random_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRAMES = Query("SELECT run, count(*) FROM frame_sent GROUP BY run", ("FrameSent",))
BATCHES = Query("SELECT run, count(*) FROM batch_appended GROUP BY run", ("BatchAppended",))
RECORDS = Query("SELECT run, count(*) FROM record_sent GROUP BY run", ("RecordSent",))
ALL = (FRAMES, BATCHES, RECORDS)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Three runs in one dataset, with compacted files."""
    place = tmp_path_factory.mktemp("tasks")
    return as_one(directories([random_history(seed) for seed in (0, 5, 7)], place), place / "all")


class TasksHere:
    """Does all tasks in this process."""

    def __init__(self, runs: Runs, tasks_at_a_time: int) -> None:
        self._runs, self._tasks_at_a_time = runs, tasks_at_a_time
        self.tasks: list[QueryTask] = []

    def ask(self, queries: Sequence[Query], answered: Answered = nothing) -> list[Cells]:
        """Run the queries."""
        tasks = tasks_of(self._runs, queries, self._tasks_at_a_time)
        self.tasks += tasks
        answers = [
            msgspec.json.decode(answer_task(msgspec.json.encode(task)), type=TaskAnswer)
            for task in tasks
        ]
        return [row for answer in answers for rows in answer.rows for row in rows]


@pytest.mark.parametrize(("task_events", "tasks_at_least"), [(1, 20), (10_000_000, 2)])
def test_all_ways_to_distribute_give_the_rows_of_one_duckdb(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, task_events: int, tasks_at_least: int
) -> None:
    """A task per run and query, and one task for everything."""
    monkeypatch.setattr(query_tasks, "TASK_EVENTS_MIN", task_events)
    monkeypatch.setattr(query_tasks, "QUERY_EVENTS", 1)
    here = TasksHere(runs, 1_000)
    invariants = INVARIANTS.all()[::9]
    found = find_rows(here, runs, invariants)
    assert len(here.tasks) >= min(tasks_at_least, 2 * len(invariants))
    assert Counter(found) == Counter(find_rows(DuckdbQueries(runs), runs, invariants)) != Counter()


def test_each_query_reads_each_run_once_expensive_ones_first(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large runs are distributed over tasks by query, small ones share a task."""
    first, *rest = runs.manifests
    large = msgspec.structs.replace(first, kinds={"FrameSent": 9_000_000, "RecordSent": 1_000_000})
    small = [msgspec.structs.replace(each, kinds={"RecordSent": 10}) for each in rest]
    tasks = tasks_of(runs._replace(manifests=(large, *small)), ALL, tasks_at_a_time=2)
    assert [(task.numbers, len(task.manifests), task.cost >= 9_000_000) for task in tasks] == [
        ((0,), 1, True),
        ((2, 1), 1, False),
        ((2, 0, 1), 2, False),
    ]
    assert sorted(
        (manifest.run, number)
        for task in tasks
        for manifest in task.manifests
        for number in task.numbers
    ) == sorted((run.run, number) for run in runs.manifests for number in range(len(ALL)))


def test_a_worker_without_duckdb_says_so(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has it, and a worker of another machine may not."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    (task,) = tasks_of(runs, ALL, tasks_at_a_time=1)
    answer = msgspec.json.decode(answer_task(msgspec.json.encode(task)), type=TaskAnswer)
    assert "has no DuckDB" in answer.trouble and "--engine spark-sql" in answer.trouble


def test_a_task_has_its_own_limits(runs: Runs, tmp_path: Path) -> None:
    """What exceeds the memory of a task is written to its own directory."""
    with DuckdbQueries(runs, DuckdbLimits(1, 300, tmp_path)) as duckdb:
        (found,) = duckdb.ask(
            [
                Query(
                    "SELECT current_setting('threads'), current_setting('memory_limit'), "
                    "current_setting('temp_directory')",
                    (),
                )
            ]
        )
    assert found == (1, "300.0 MiB", str(tmp_path))


@pytest.mark.spark
def test_ended_tasks_of_spark_are_counted_and_their_results_complete(
    spark: "SparkSession",
) -> None:
    """The number only grows, up to that of all tasks."""
    ended: list[int] = []
    results: list[bytes] = []
    SparkWorkers(spark).run(
        "binascii:hexlify", [b"a", b"b", b"c"], results.append, ended=ended.append
    )
    assert sorted(results) == [b"61", b"62", b"63"]
    assert ended == sorted(ended) and ended[-1] == 3
