"""`make demo`: librdkafka producers write a text while a broker and the controller are killed;
Spark checks the result.

Source: the scenario `idempotent_producers_under_kill`, in process mode.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.panel import Panel
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

if TYPE_CHECKING:
    from kraftsim.analysis.analysis import Analysis
    from kraftsim.analysis.dataset import IngestResult
    from kraftsim.analysis.places import Place
    from kraftsim.lab.explore.result import RunResult

T = TypeVar("T")
SCENARIO = "idempotent_producers_under_kill"


def main() -> int:
    """Run the scenario, analyse it, write the report, and print a summary.

    Returns the exit code of the analysis.
    """
    options = _options()
    console = Console(markup=False)
    shutil.rmtree(options.out, ignore_errors=True)
    began = time.monotonic()
    console.print(Panel.fit(_introduction(), title="kraftsim demo"))
    columns = (
        SpinnerColumn(finished_text=Text("ok", "green")),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        result = _step(
            progress,
            "1/4 producers write, a broker and the controller are killed",
            lambda: _run(options.out),
        )
        _step(
            progress,
            "2/4 the event logs are converted to a dataset of Parquet files",
            lambda: _ingest(options.out),
        )
        analysis = _step(progress, "3/4 Spark checks the invariants", lambda: _analyze(options.out))
        report = _step(progress, "4/4 the report is written", lambda: _report(options.out))
    for line in analysis.lines():
        console.print(line, highlight=False)
    console.print(_summary(result, analysis, report, time.monotonic() - began), highlight=False)
    good = result.outcome == "ok" and analysis.verdict == "ok"
    return 0 if good else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make demo", description="The main use case of kraftsim, with real clients."
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/demo"),
        help="directory of the run (existing content is deleted)",
    )
    return parser.parse_args()


def _introduction() -> str:
    from kraftsim.cluster.scenario import Mode
    from scenarios.idempotent_producers_under_kill import DOWN_MS, KILLS, PARTITIONS, WRITERS, text

    kills = " and ".join(f"{target} after {at_ms / 1000:g} s" for target, at_ms in KILLS)
    return (
        f"1 controller and 3 brokers run as processes and speak Kafka's protocol.\n{WRITERS} "
        f"idempotent producers (librdkafka) write {len(text(Mode.PROCESSES))} lines of Python's\n"
        f"help texts to a topic of {PARTITIONS} partitions. SIGKILL hits "
        f"{kills.split(' and ')[0]}\nand {kills.split(' and ')[1]}; both are restarted "
        f"{DOWN_MS / 1000:g} s later.\nIs every line in the log exactly once?"
    )


def _step(progress: Progress, title: str, work: Callable[[], T]) -> T:
    task = progress.add_task(title, total=1)
    done = work()
    progress.update(task, completed=1)
    return done


def _run(out: Path) -> "RunResult":
    from kraftsim.lab.explore.run import run_scenario

    return run_scenario(SCENARIO, mode="processes", seed=1, out=out)


def _ingest(out: Path) -> "IngestResult":
    from kraftsim.analysis.ingest import ingest_run

    return ingest_run(out)


def _analyze(out: Path) -> "Analysis":
    from kraftsim.analysis.analyze import analyze_run
    from kraftsim.analysis.engines import Engine

    return analyze_run(out, (), engine=Engine.SPARK)


def _report(out: Path) -> "Place":
    from kraftsim.analysis.report import write_report

    return write_report(out, None)


def _summary(result: "RunResult", analysis: "Analysis", report: "Place", seconds: float) -> str:
    kills = sum(fired for _, fired, _ in result.faults.values())
    answer = (
        "every line is there exactly once"
        if result.outcome == "ok"
        else f"the run ended as '{result.outcome}': {result.trouble or 'see above'}"
    )
    return (
        f"\n{kills} processes were killed and restarted; {answer}.\n"
        f"Spark's verdict over {result.event_count} events: {analysis.verdict}.\n"
        f"To see the report, open {report} in a browser.\n"
        f"({seconds:.0f} s in all)"
    )


if __name__ == "__main__":
    sys.exit(main())
