"""Runs designs of the idempotent producer over many seeds, and writes one report: tables, plots,
and the command that repeats it.

Outcomes are JSON lines, one per run; Spark or Python adds them up, with the same sums.
Source: see `kraftsim/lab/comparison/systems.py`.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from time import process_time
from typing import Final

import msgspec

from kraftsim.lab.campaign.comparison_page import html_page, markdown_page, picture
from kraftsim.lab.comparison.outcome import ComparisonOutcome
from kraftsim.lab.comparison.run import plan_of, run
from kraftsim.lab.comparison.systems import SYSTEMS, system_named

OUTCOMES: Final = "outcomes.jsonl"
SUMS: Final = (
    "records",
    "doubled",
    "lost",
    "missing",
    "disordered",
    "refusals",
    "fenced",
    "requests",
    "ids_used",
    "ids_taken",
)


class ComparisonRow(msgspec.Struct, frozen=True, kw_only=True):
    """The sums over all runs of a design.

    `silences_ms`: of each run in which a broker was killed during writes, sorted.
    """

    system: str
    runs: int
    runs_with_doubles: int
    runs_with_losses: int
    totals: dict[str, int]
    silences_ms: tuple[int, ...]
    troubles: int

    def silence_ms(self, share: float) -> int:
        """Return a quantile of the silences; -1 if there is none."""
        return (
            self.silences_ms[min(int(len(self.silences_ms) * share), len(self.silences_ms) - 1)]
            if self.silences_ms
            else -1
        )


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """All outcomes, and their costs."""

    outcomes: tuple[ComparisonOutcome, ...]
    cpu_seconds: float

    @property
    def seeds_per_cpu_second(self) -> float:
        """Runs of one design per CPU second."""
        return len(self.outcomes) / self.cpu_seconds if self.cpu_seconds else 0.0


def run_one(name: str, seed: int) -> tuple[ComparisonOutcome, float]:
    """Run one seed over one design; return the outcome, and the CPU seconds."""
    before = process_time()
    outcome = run(system_named(name), plan_of(seed))
    return outcome, process_time() - before


def compare(
    seeds: Sequence[int],
    names: Sequence[str] = (),
    *,
    jobs: int = 1,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> ComparedRun:
    """Run every seed over every design, or over some of them."""
    chosen = [system_named(name).name for name in names] or [system.name for system in SYSTEMS]
    work = [(name, seed) for seed in seeds for name in chosen]
    outcomes: list[ComparisonOutcome] = []
    seconds = 0.0
    for done, (outcome, took) in enumerate(_played(work, jobs), 1):
        outcomes.append(outcome)
        seconds += took
        report(done, len(work))
    return ComparedRun(outcomes=tuple(outcomes), cpu_seconds=seconds)


def _played(
    work: Sequence[tuple[str, int]], jobs: int
) -> Iterator[tuple[ComparisonOutcome, float]]:
    """Yield the result of each job, in order."""
    if jobs <= 1:
        for name, seed in work:
            yield run_one(name, seed)
        return
    with ProcessPoolExecutor(max_workers=min(jobs, os.cpu_count() or 1)) as pool:
        futures: list[Future[tuple[ComparisonOutcome, float]]] = [
            pool.submit(run_one, name, seed) for name, seed in work
        ]
        for future in futures:
            yield future.result()


def rows_of(outcomes: Sequence[ComparisonOutcome]) -> list[ComparisonRow]:
    """Add up the outcomes, by design, in the order of the designs."""
    rows = []
    for system in SYSTEMS:
        own = [each for each in outcomes if each.system == system.name]
        if own:
            rows.append(
                ComparisonRow(
                    system=system.name,
                    runs=len(own),
                    runs_with_doubles=sum(each.doubled > 0 for each in own),
                    runs_with_losses=sum(each.lost > 0 for each in own),
                    totals={name: sum(getattr(each, name) for each in own) for name in SUMS},
                    silences_ms=tuple(
                        sorted(each.silence_ms for each in own if each.silence_ms >= 0)
                    ),
                    troubles=sum(each.trouble is not None for each in own),
                )
            )
    return rows


def rows_by_spark(
    outcomes: Path, master: str, conf: Mapping[str, str] | None = None
) -> list[ComparisonRow]:
    """Add up the outcomes of a file with Spark. Raises JavaMissing."""
    from kraftsim.analysis.session import SparkOptions, spark_session

    sums = ", ".join(f"sum({name}) AS {name}" for name in SUMS)
    with spark_session(SparkOptions(master=master, conf=conf or {})) as spark:
        spark.read.json(str(outcomes)).createOrReplaceTempView("outcomes")
        found = spark.sql(
            "SELECT system, count(*) AS runs, sum(CAST(doubled > 0 AS INT)) AS with_doubles, "
            "sum(CAST(lost > 0 AS INT)) AS with_losses, sort_array(collect_list(CASE WHEN "
            "silence_ms >= 0 THEN silence_ms END)) AS silences, count(trouble) AS troubles, "
            f"{sums} FROM outcomes GROUP BY system"
        ).collect()
    rows = {
        each["system"]: ComparisonRow(
            system=each["system"],
            runs=each["runs"],
            runs_with_doubles=each["with_doubles"],
            runs_with_losses=each["with_losses"],
            totals={name: each[name] for name in SUMS},
            silences_ms=tuple(each["silences"]),
            troubles=each["troubles"],
        )
        for each in found
    }
    return [rows[system.name] for system in SYSTEMS if system.name in rows]


def write_outcomes(runs: ComparedRun, directory: Path) -> Path:
    """Write one JSON line per run; return the file."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / OUTCOMES
    file.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in runs.outcomes))
    return file


def write_report(
    rows: Sequence[ComparisonRow], memory: dict[str, float], command: str, directory: Path
) -> tuple[Path, Path]:
    """Write the HTML report, its tables as Markdown, and an SVG; return the first two files."""
    directory.mkdir(parents=True, exist_ok=True)
    html, markdown = directory / "comparison.html", directory / "comparison.md"
    titles = {system.name: system.title for system in SYSTEMS}
    html.write_text(html_page(rows, titles, memory, command))
    (directory / "comparison.svg").write_text(picture(rows, titles))
    markdown.write_text(markdown_page(rows, titles, memory, command))
    return html, markdown
