"""Where the work of ingest runs: in this process, in processes on this machine, or as tasks of
Spark.

A task is a function of a module, called with one JSON text and returning one: nothing else crosses
to a worker, whose memory is that of one task.
"""

import importlib
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_IN_PROCESS_MAX: Final = 2
"""So few tasks are done before a process for them has started."""
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

    def run(self, task: str, arguments: Sequence[bytes], done: Done) -> None:
        """Do the tasks; the results arrive when all are done."""
        if not arguments:
            return
        rows = pa.table({"number": range(len(arguments)), "argument": list(arguments)})
        frame = self._spark.createDataFrame(rows).repartitionByRange(len(arguments), "number")

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                results = [_call(task, each) for each in batch.column("argument").to_pylist()]
                yield pa.RecordBatch.from_pydict({"result": pa.array(results, pa.binary())})

        for row in frame.mapInArrow(work, "result binary").collect():
            done(bytes(row.result))


def _call(task: str, argument: bytes) -> bytes:
    pa.set_cpu_count(1)  # a worker has one core
    return _function(task)(argument)


def _function(task: str) -> Callable[[bytes], bytes]:
    module, _, name = task.partition(":")
    function: Callable[[bytes], bytes] = getattr(importlib.import_module(module), name)
    return function


if __name__ == "__main__":
    main()
