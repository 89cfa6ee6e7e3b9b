"""Queries as tasks of Spark: Spark distributes and repeats tasks, and in each task DuckDB runs the
SQL on the Parquet files.

Most of an invariant's time in Spark SQL is planning and rows in Java; DuckDB needs a tenth of it on
one core. So a task is a few queries over one run, or all queries over several small runs; the
largest tasks start first, so that all cores end at about the same time. Only the texts of queries
and the names of files go to a task, and only the rows of results come back.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kraftsim.analysis.dataset import RunManifest
from kraftsim.analysis.places import LocalPlace, Place, place_of
from kraftsim.analysis.queries import (
    Answered,
    Cells,
    DuckdbLimits,
    DuckdbQueries,
    Query,
    cores_of,
    nothing,
)
from kraftsim.analysis.views import Runs
from kraftsim.analysis.workers import SparkWorkers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY_SETTING: Final = "spark.kraftsim.task.memory.mib"
"""The setting of Spark with the memory of a task's DuckDB: what exceeds it is written to Spark's
local directories.
"""
MEMORY_MIB_MAX: Final = 2048
"""The default for each core, or half of the machine's memory divided by its cores if that is less.
"""
CORES_SETTING: Final = "spark.task.cpus"
SPILL_VARIABLE: Final = "SPARK_LOCAL_DIRS"
"""Spark names its local directories to its Python processes."""
TASKS_PER_CORE: Final = 4
"""Costs are estimates: with several tasks per core none waits long for the last one."""
QUERY_EVENTS: Final = 20_000
"""A query without any event takes as long as reading so many."""
TASK_EVENTS_MIN: Final = 1_000_000
"""Smaller tasks would cost more than they do."""


class QueryTask(msgspec.Struct, frozen=True, kw_only=True):
    """Queries over some runs of a dataset; `numbers` are their places among all queries."""

    numbers: tuple[int, ...]
    queries: tuple[Query, ...]
    root: str
    manifests: tuple[RunManifest, ...]
    are_many: bool
    memory_mib: int | None = None
    cost: int = 0

    @property
    def runs(self) -> Runs:
        """The runs, as their views need them."""
        return Runs(place_of(self.root), self.manifests, self.are_many)


class TaskAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of each query of a task; `trouble` if the process of the task lacks something."""

    numbers: tuple[int, ...] = ()
    rows: tuple[tuple[Cells, ...], ...] = ()
    trouble: str = ""


# --------------------------------------------------------------------------------------------------
# In a task


def answer_task(argument: bytes) -> bytes:
    """Run the queries of a `QueryTask`, and return its `TaskAnswer`."""
    task = msgspec.json.decode(argument, type=QueryTask)
    local = os.environ.get(SPILL_VARIABLE, "").split(",")[0] or None
    with tempfile.TemporaryDirectory(prefix="kraftsim-spill-", dir=local) as spill:
        cores = _cores_of_task()
        limits = DuckdbLimits(cores, task.memory_mib or _memory_mib(cores), Path(spill))
        try:
            duckdb = DuckdbQueries(task.runs, limits)
        except ImportError as missing:
            return msgspec.json.encode(
                TaskAnswer(
                    trouble=f"a worker of Spark has no DuckDB ({missing}): install it there, or "
                    "use --engine spark-sql"
                )
            )
        with duckdb:
            rows = tuple(tuple(duckdb.ask([query])) for query in task.queries)
    return msgspec.json.encode(TaskAnswer(numbers=task.numbers, rows=rows))


def _memory_mib(cores: int) -> int:
    """Return the memory of a task with so many cores of this machine."""
    machine_mib = (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) >> 20
    return min(MEMORY_MIB_MAX, machine_mib // 2 // (os.cpu_count() or 1)) * cores


def _cores_of_task() -> int:
    """Return the cores that Spark gives to the task of this process; 1 outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else max(1, context.cpus())


# --------------------------------------------------------------------------------------------------
# In the driver


class SparkTaskQueries:
    """DuckDB, in tasks of Spark; also over Spark Connect.

    The workers need kraftsim and DuckDB, and see the files of the dataset.
    """

    def __init__(self, spark: "SparkSession", runs: Runs) -> None:
        self._workers, self._runs = SparkWorkers(spark), runs
        cores_of_task = int(spark.conf.get(CORES_SETTING, "1") or 1)
        self._tasks_at_a_time = max(1, cores_of(spark) // cores_of_task)
        memory_mib = spark.conf.get(MEMORY_SETTING, "")
        self._memory_mib = int(memory_mib) if memory_mib else None

    def ask(self, queries: Sequence[Query], answered: Answered = nothing) -> list[Cells]:
        """Run the queries as tasks, and return the rows when all have ended. `answered` is called
        as tasks end, for each query once.

        Raises RuntimeError if the workers lack DuckDB.
        """
        tasks = tasks_of(self._runs, queries, self._tasks_at_a_time, self._memory_mib)
        found: list[list[Cells]] = [[] for _ in queries]
        called = 0

        def ended(count: int) -> None:
            nonlocal called
            for _ in range(len(queries) * count // len(tasks) - called):
                called += 1
                answered()

        def done(result: bytes) -> None:
            answer = msgspec.json.decode(result, type=TaskAnswer)
            if answer.trouble:
                raise RuntimeError(answer.trouble)
            for number, rows in zip(answer.numbers, answer.rows, strict=True):
                found[number] += rows

        self._workers.run(
            f"{__name__}:answer_task",
            [msgspec.json.encode(task) for task in tasks],
            done,
            ended=ended,
        )
        return [row for rows in found for row in rows]


class _Part(NamedTuple):
    """Runs that a task reads together, and the events that each query reads of them."""

    manifests: tuple[RunManifest, ...]
    costs: tuple[int, ...]


def tasks_of(
    runs: Runs, queries: Sequence[Query], tasks_at_a_time: int, memory_mib: int | None = None
) -> list[QueryTask]:
    """Return tasks that together run each query over each run once, the most expensive first.

    The cost of a query is the number of events of the kinds that it reads. A run whose queries
    cost more than a task may is distributed over tasks; others share one, neighbours by name,
    because those share compacted files.
    """
    costs = [tuple(_cost(each, query) for query in queries) for each in runs.manifests]
    cost_max = max(
        TASK_EVENTS_MIN, sum(map(sum, costs)) // max(1, tasks_at_a_time * TASKS_PER_CORE)
    )
    tasks = [
        QueryTask(
            numbers=numbers,
            queries=tuple(queries[number] for number in numbers),
            root=_address(runs.root),
            manifests=tuple(map(_for_views, part.manifests)),
            are_many=runs.are_many,
            memory_mib=memory_mib,
            cost=sum(part.costs[number] for number in numbers),
        )
        for part in _parts(runs.manifests, costs, cost_max)
        for numbers in _grouped(part.costs, cost_max)
    ]
    return sorted(tasks, key=lambda task: -task.cost)


def _address(root: Place) -> str:
    """Return the address of a dataset for processes with another working directory."""
    return str(root.path.absolute()) if isinstance(root, LocalPlace) else str(root)


def _cost(manifest: RunManifest, query: Query) -> int:
    return QUERY_EVENTS + sum(manifest.kinds.get(kind, 0) for kind in query.kinds)


def _parts(
    manifests: Sequence[RunManifest], costs: Sequence[tuple[int, ...]], cost_max: int
) -> Iterator[_Part]:
    """Yield the runs in parts of at most `cost_max`, or of one run."""
    part: list[RunManifest] = []
    sums: list[int] = []
    for manifest, own in zip(manifests, costs, strict=True):
        if part and sum(sums) + sum(own) > cost_max:
            yield _Part(tuple(part), tuple(sums))
            part, sums = [], []
        part.append(manifest)
        sums = [first + second for first, second in zip(sums or [0] * len(own), own, strict=True)]
    if part:
        yield _Part(tuple(part), tuple(sums))


def _grouped(costs: Sequence[int], cost_max: int) -> Iterator[tuple[int, ...]]:
    """Yield the places of queries in groups of at most `cost_max`, or of one query; expensive ones
    first, because they are alone.
    """
    group: list[int] = []
    total = 0
    for number in sorted(range(len(costs)), key=lambda place: -costs[place]):
        if group and total + costs[number] > cost_max:
            yield tuple(group)
            group, total = [], 0
        group.append(number)
        total += costs[number]
    if group:
        yield tuple(group)


def _for_views(manifest: RunManifest) -> RunManifest:
    """Return a manifest with what views need of it: its files, kinds and number of events."""
    ingest = msgspec.structs.replace(manifest.ingest, files=(), gaps=(), unknown_kinds={})
    return msgspec.structs.replace(manifest, ingest=ingest, facts={})
