"""Runs designs of the idempotent producer over many seeds, and writes one report: tables, plots,
and the command that repeats it.

Outcomes are JSON lines, one per run; Spark or Python adds them up, with the same sums.
Source: see `kraftsim/lab/comparison/plan.py`.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from html import escape
from pathlib import Path
from time import process_time
from typing import Final

import msgspec

from kraftsim.lab.comparison.plan import SYSTEMS, ComparisonOutcome, system_named
from kraftsim.lab.comparison.run import plan_of, run

# --------------------------------------------------------------------------------------------------
# The report of a comparison: a table of sums, and plots of them in SVG without external files; the
# same table as Markdown

COLUMNS: Final = (
    ("doubled", "records doubled"),
    ("lost", "acknowledged and lost"),
    ("disordered", "out of order"),
    ("refusals", "refusals"),
    ("fenced", "producers fenced"),
    ("requests", "requests"),
    ("ids_used", "ids used"),
    ("ids_taken", "ids taken"),
)
PLOTS: Final = ("doubled", "refusals", "requests", "ids_taken")
COLOURS: Final = ("#b5541c", "#1c6bb5", "#2b8a3e", "#862e9c")
INK: Final = "#333333"
LABEL_WIDTH, BAR_WIDTH, ROW_HEIGHT, TOP = 330, 420, 22, 34
STYLE: Final = (
    "body{font:14px sans-serif;margin:2em;color:#333}"
    "table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:4px 8px;text-align:right}"
    "td:first-child,th:first-child{text-align:left}"
    "svg{display:block;margin:1.5em 0}"
    "code{background:#f4f4f4;padding:2px 4px}"
)


def table_of(rows: "Sequence[ComparisonRow]", titles: Mapping[str, str]) -> list[list[str]]:
    """Return the table, with the column names as its first row."""
    head = [
        "design",
        "runs",
        "with doubles",
        "with losses",
        *(title for _, title in COLUMNS),
        "time without acknowledgements after a kill, median, ms",
        "at worst, ms",
    ]
    body = []
    for row in rows:
        counts = [f"{row.totals[name]:,}" for name, _ in COLUMNS]
        silences = [f"{row.silence_ms(0.5):,}", f"{row.silence_ms(1.0):,}"]
        body.append(
            [
                titles[row.system],
                f"{row.runs:,}",
                f"{row.runs_with_doubles:,}",
                f"{row.runs_with_losses:,}",
                *counts,
                *silences,
            ]
        )
    return [head, *body]


def markdown_page(
    rows: "Sequence[ComparisonRow]",
    titles: Mapping[str, str],
    memory: Mapping[str, float],
    command: str,
) -> str:
    """Return the tables as Markdown."""
    head, *body = table_of(rows, titles)
    lines = [
        f"`{command}`",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(each)} |" for each in body),
    ]
    lines += ["", "| what is kept of a producer in a partition | bytes |", "|---|---|"]
    lines += [f"| {what} | {value:,.0f} |" for what, value in memory.items()]
    return "\n".join(lines) + "\n"


def html_page(
    rows: "Sequence[ComparisonRow]",
    titles: Mapping[str, str],
    memory: Mapping[str, float],
    command: str,
) -> str:
    """Return the report."""
    head, *body = table_of(rows, titles)
    cells = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in each)}</tr>" for each in body
    )
    plots = [
        bars(title, [(titles[row.system], row.totals[name]) for row in rows], colour)
        for (name, title), colour in _plotted()
    ]
    plots.append(
        bars(
            "silence after a broker was killed, median, ms",
            [(titles[row.system], max(row.silence_ms(0.5), 0)) for row in rows],
            COLOURS[0],
        )
    )
    plots.append(
        bars(
            "bytes kept of a producer in a partition",
            [(what, round(value)) for what, value in memory.items()],
            COLOURS[1],
        )
    )
    return (
        "<!doctype html><meta charset='utf-8'><title>Producers "
        f"compared</title><style>{STYLE}</style><h1>Producers compared</h1><p>The same workload "
        "and the same mishaps, by seed, over each design. Again: "
        f"<code>{escape(command)}</code></p><table><tr>"
        f"{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>{cells}</table>"
        f"{''.join(plots)}\n"
    )


def bars(title: str, values: Sequence[tuple[str, int]], colour: str) -> str:
    """Draw a bar for each value, scaled to the largest."""
    most = max([value for _, value in values] + [1])
    height = TOP + ROW_HEIGHT * len(values) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL_WIDTH + BAR_WIDTH + 90}" '
        f'height="{height}" font-family="sans-serif" font-size="12" fill="{INK}">',
        f'<text x="0" y="18" font-weight="bold">{escape(title)}</text>',
    ]
    for number, (name, value) in enumerate(values):
        y = TOP + number * ROW_HEIGHT
        length = value / most * BAR_WIDTH
        label = name if len(name) < 56 else f"{name[:53]}..."
        parts.append(
            f'<text x="{LABEL_WIDTH - 8}" y="{y + 12}" text-anchor="end">{escape(label)}</text>'
        )
        parts.append(
            f'<rect x="{LABEL_WIDTH}" y="{y}" width="{max(length, 1):.1f}" height="15" '
            f'fill="{colour}"/>'
        )
        parts.append(
            f'<text x="{LABEL_WIDTH + max(length, 1) + 5:.1f}" y="{y + 12}">{value:,}</text>'
        )
    parts.append("</svg>")
    return "\n".join(parts)


def picture(rows: "Sequence[ComparisonRow]", titles: Mapping[str, str]) -> str:
    """Return one SVG: duplicates, losses, requests, and time without acknowledgements after a kill,
    one below the other.
    """
    columns: list[tuple[str, list[int]]] = [
        ("records doubled", [row.totals["doubled"] for row in rows]),
        ("records acknowledged and lost", [row.totals["lost"] for row in rows]),
        ("requests", [row.totals["requests"] for row in rows]),
        (
            "silence after a broker was killed, median, ms",
            [max(row.silence_ms(0.5), 0) for row in rows],
        ),
    ]
    names = [titles[row.system] for row in rows]
    panel = TOP + ROW_HEIGHT * len(rows) + 20
    width, height = LABEL_WIDTH + BAR_WIDTH + 100, panel * len(columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, ((title, values), colour) in enumerate(zip(columns, COLOURS, strict=True)):
        parts.append(
            bars(title, list(zip(names, values, strict=True)), colour).replace(
                "<svg ", f'<svg y="{number * panel}" ', 1
            )
        )
    return "\n".join([*parts, "</svg>", ""])


def _plotted() -> list[tuple[tuple[str, str], str]]:
    chosen = [each for each in COLUMNS if each[0] in PLOTS]
    return list(zip(chosen, COLOURS, strict=True))


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
