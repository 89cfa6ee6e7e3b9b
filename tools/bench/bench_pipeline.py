"""Measures the data pipeline on a generated run: event logs to a dataset, all invariants by tasks
of Spark and by DuckDB in one process, and the report.

    python -m tools.bench pipeline --events 10000000

Prints one JSON object: seconds of each step (`analyze_s` is a second analysis in the same Spark,
`analyze_cold_s` the first one, with the start of Java; `duckdb_again_s` follows `analyze_s`, so
that their ratio holds under other load, too), and the peak memory of this process and all its
children together, sampled ten times a second.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kraftsim.analysis.analyze import analyze_run
from kraftsim.analysis.engines import LARGE_RUN_EVENTS_MIN, Engine
from kraftsim.analysis.ingest import ingest_run
from kraftsim.analysis.queries import DuckdbQueries, SparkSqlQueries
from kraftsim.analysis.query_tasks import SparkTaskQueries
from kraftsim.analysis.report import write_report
from kraftsim.analysis.session import spark_session
from kraftsim.analysis.verdicts import find_rows
from kraftsim.analysis.views import one_run
from kraftsim.invariants.invariant import INVARIANTS
from tools.bench.generated_run import write_run
from tools.bench.result import Basis, report_cost

Result = TypeVar("Result")
PAUSE_SECONDS = 0.1


class Memory:
    """Samples the resident memory of this process and its descendants."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._is_over.wait(PAUSE_SECONDS):
            self.peak_bytes = max(self.peak_bytes, family_bytes(os.getpid()))


def family_bytes(pid: int) -> int:
    """Return the resident memory of a process and its descendants; memory that they share with each
    other counts once for each.
    """
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            parent = _parent(int(entry))
            if parent is not None:
                children.setdefault(parent, []).append(int(entry))
    total, waiting = 0, [pid]
    while waiting:
        each = waiting.pop()
        total += _resident_bytes(each)
        waiting += children.get(each, [])
    return total


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def timed(what: str, work: Callable[[], Result], seconds: dict[str, float]) -> Result:
    """Do the work, and note and print its seconds."""
    began = time.perf_counter()
    result = work()
    seconds[what] = round(time.perf_counter() - began, 2)
    print(f"{what:<16} {seconds[what]:9.2f}", file=sys.stderr, flush=True)
    return result


def measure(
    run: Path, event_count: int, *, on_spark: bool, with_spark_sql: bool
) -> dict[str, float]:
    """Return the figures of a run of this size."""
    found: dict[str, float] = {}
    events = timed("generate_s", lambda: write_run(run, event_count), found)
    with Memory() as memory:
        if on_spark:
            with spark_session() as spark:
                ingest = timed("ingest_s", lambda: ingest_run(run, spark=spark), found)
        else:
            ingest = timed("ingest_s", lambda: ingest_run(run), found)
        assert ingest.event_count == events, "every line is there"
        runs = one_run(ingest.parquet)
        invariants = INVARIANTS.all()
        with_duckdb = timed(
            "duckdb_s", lambda: find_rows(DuckdbQueries(runs), runs, invariants), found
        )
        analysis = timed("analyze_cold_s", lambda: analyze_run(run, engine=Engine.SPARK), found)
        violated = [each.invariant for each in analysis.verdicts if each.violation_count]
        assert violated == ["producer-id-unique"], "one id is returned twice, and all else is sound"
        with spark_session() as spark:
            find_rows(SparkTaskQueries(spark, runs), runs, invariants)
            rows = timed(
                "analyze_s",
                lambda: find_rows(SparkTaskQueries(spark, runs), runs, invariants),
                found,
            )
            timed("duckdb_again_s", lambda: find_rows(DuckdbQueries(runs), runs, invariants), found)
        timed("report_s", lambda: write_report(run), found)
        assert sorted(map(str, with_duckdb)) == sorted(map(str, rows)), "both engines agree"
    if with_spark_sql:
        with spark_session(is_large=events > LARGE_RUN_EVENTS_MIN) as spark:
            find_rows(SparkSqlQueries(spark, runs), runs, invariants)
            rows = timed(
                "spark_sql_s",
                lambda: find_rows(SparkSqlQueries(spark, runs), runs, invariants),
                found,
            )
        assert sorted(map(str, with_duckdb)) == sorted(map(str, rows)), "all engines agree"
    return {"events": events, **found, "peak_rss_mib": round(memory.peak_bytes / 2**20)}


def main() -> int:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench pipeline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=1_000_000, help="size of the run")
    parser.add_argument(
        "--ingest-by-processes",
        action="store_true",
        help="read the logs by processes of this machine instead of tasks of Spark",
    )
    parser.add_argument(
        "--spark-sql", action="store_true", help="measure Spark SQL, too: `spark_sql_s`, again"
    )
    parser.add_argument("--keep", type=Path, help="an empty directory for the run, and keep it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kraftsim-bench-") as scratch:
        run = options.keep or Path(scratch) / "run"
        figures = measure(
            run,
            options.events,
            on_spark=not options.ingest_by_processes,
            with_spark_sql=options.spark_sql,
        )
    print(json.dumps(figures))
    for name, value in figures.items():
        if name.endswith("_s"):
            words = name.removesuffix("_s").replace("_", " ")
            title = f"{words}, {figures['events']:,} events"
            report_cost(f"pipeline.{name.removesuffix('_s')}", title, "s", [value])
    peak = figures["peak_rss_mib"]
    report_cost("pipeline.memory", "memory at most", "MiB", [peak], basis=Basis.SIZE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
