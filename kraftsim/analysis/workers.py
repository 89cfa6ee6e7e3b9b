"""Where the work of ingest and of queries runs: in this process, in processes on this machine, or
as tasks of Spark.

A task is a function of a module, called with one JSON text and returning one: nothing else crosses
to a worker, whose memory is that of one task.
"""

import importlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol, cast

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

TASKS_IN_PROCESS_MAX: Final = 2
"""So few tasks are done before a process for them has started."""
REPORT_SECONDS: Final = 0.25
GROUP: Final = "spark.jobGroup.id"
_GROUPS: Final = count()
"""Numbers of groups of jobs: by one a thread finds the jobs of another."""
Done = Callable[[bytes], None]


class Workers(Protocol):
    """Does tasks, in any order."""

    def run(self, task: str, arguments: Sequence[bytes], done: Done) -> None:
        """Call `task`, 'module:function', with each argument; `done` gets each result.

        Raises what a task raises.
        """
        ...


class HereWorkers:
    """Does the tasks in this process, one after the other."""

    def run(self, task: str, arguments: Sequence[bytes], done: Done) -> None:
        """Do the tasks."""
        function = _function(task)
        for argument in arguments:
            done(function(argument))


class ProcessWorkers:
    """Does the tasks in a process per core: `python -m kraftsim.analysis.workers`, which reads a
    task per line. A script that ingests runs needs no `if __name__ == "__main__"` for it.
    """

    def __init__(self, processes: int | None = None) -> None:
        self._processes = processes or os.cpu_count() or 1

    def run(self, task: str, arguments: Sequence[bytes], done: Done) -> None:
        """Do the tasks; a few are done here. Raises RuntimeError if a worker fails."""
        if len(arguments) <= TASKS_IN_PROCESS_MAX or self._processes == 1:
            HereWorkers().run(task, arguments, done)
            return
        pending = queue.SimpleQueue[bytes]()
        for argument in arguments:
            pending.put(argument)
        count = min(self._processes, len(arguments))
        with ThreadPoolExecutor(count) as threads:
            results = queue.SimpleQueue[bytes | None]()
            workers = [threads.submit(_feed, task, pending, results) for _ in range(count)]
            ended = 0
            while ended < len(workers):
                result = results.get()
                if result is None:
                    ended += 1
                else:
                    done(result)
            for worker in workers:
                worker.result()


def _feed(
    task: str, pending: "queue.SimpleQueue[bytes]", results: "queue.SimpleQueue[bytes | None]"
) -> None:
    """Give a worker process one task after the other, as long as there are any."""
    try:
        with subprocess.Popen(
            [sys.executable, "-m", __name__, task], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdin is not None and child.stdout is not None, "both are pipes"
            while True:
                try:
                    argument = pending.get_nowait()
                except queue.Empty:
                    child.stdin.close()
                    return
                child.stdin.write(argument + b"\n")
                child.stdin.flush()
                result = child.stdout.readline()
                if not result:
                    raise RuntimeError(
                        f"a worker of {task} ended with exit code {child.wait()}: its standard "
                        "error says why"
                    )
                results.put(result)
    finally:
        results.put(None)


def main() -> None:
    """Do the tasks of standard input, one per line, as a worker process."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a print of a library is no result
    for argument in sys.stdin.buffer:
        try:
            output.write(_call(sys.argv[1], argument) + b"\n")
        except OSError as trouble:  # a log that is gone, a store that refuses: one line
            sys.exit(str(trouble))
        output.flush()


class SparkWorkers:
    """Does the tasks as tasks of Spark (`mapInArrow`), one row each; also over Spark Connect.

    The workers must have kraftsim installed and see the files that the tasks name.
    """

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def run(
        self,
        task: str,
        arguments: Sequence[bytes],
        done: Done,
        *,
        ended: Callable[[int], None] | None = None,
    ) -> None:
        """Do the tasks, the first ones first; the results arrive when all are done. `ended` gets
        the number of those that have ended, from time to time and at the end.
        """
        if not arguments:
            return
        # One row in each part, without a shuffle; the arguments go with the function.
        frame = self._spark.range(0, len(arguments), 1, len(arguments))

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                numbers = batch.column("id").to_pylist()
                results = [_call(task, arguments[number]) for number in numbers]
                yield pa.RecordBatch.from_pydict({"result": pa.array(results, pa.binary())})

        with ended_tasks(self._spark, len(arguments), ended or _ignore):
            found = frame.mapInArrow(work, "result binary").collect()
        for row in found:
            done(bytes(row.result))
        if ended is not None:
            ended(len(arguments))


def _ignore(ended: int) -> None:
    """Ignore how many tasks have ended."""


@contextmanager
def ended_tasks(spark: "SparkSession", tasks: int, report: Callable[[int], None]) -> Iterator[None]:
    """Report how many of the tasks that the block starts in one job have ended, as far as Spark
    says it, while the block runs. The number only grows.
    """
    is_over = threading.Event()
    group = f"kraftsim-{next(_GROUPS)}"
    most = 0

    def grown(ended: int) -> None:
        nonlocal most
        if ended > most:
            most = min(ended, tasks)
            report(most)

    if not hasattr(spark, "_jsparkSession"):  # Spark Connect

        def handle(
            stages: "Iterable[StageInfo] | None",
            inflight_tasks: int,
            operation_id: str | None,
            done: bool,
        ) -> None:
            for stage in stages or ():
                if stage.num_tasks == tasks:
                    grown(stage.num_completed_tasks)

        handler = cast("ProgressHandler", handle)  # any function of these arguments will do
        spark.registerProgressHandler(handler)
        try:
            yield
        finally:
            spark.removeProgressHandler(handler)
        return
    context = spark.sparkContext

    def watch() -> None:
        tracker = context.statusTracker()
        while not is_over.wait(REPORT_SECONDS):
            for job in tracker.getJobIdsForGroup(group):
                for stage in getattr(tracker.getJobInfo(job), "stageIds", ()):
                    info = tracker.getStageInfo(stage)
                    if info is not None and info.numTasks == tasks:
                        grown(info.numCompletedTasks)

    former = context.getLocalProperty(GROUP) or ""
    context.setJobGroup(group, "tasks of kraftsim")
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        is_over.set()
        watching.join()
        context.setLocalProperty(GROUP, former)


def _call(task: str, argument: bytes) -> bytes:
    pa.set_cpu_count(1)  # a worker has one core
    return _function(task)(argument)


def _function(task: str) -> Callable[[bytes], bytes]:
    module, _, name = task.partition(":")
    function: Callable[[bytes], bytes] = getattr(importlib.import_module(module), name)
    return function


if __name__ == "__main__":
    main()
