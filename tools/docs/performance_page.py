"""Writes docs/performance.md and its plot from the records of speed in tools/bench/history: a table
of all figures of the newest record, with ratios and goals, and the history of those with a goal.

The page is committed, because the README links it; tests/house/test_performance_page.py checks that
it is what the newest record gives. Explanations are in docs/performance/, written by hand.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.bench.catalogue import BENCHES
from tools.bench.goals import goals
from tools.bench.record import SpeedRecord, read_history
from tools.bench.result import Figure
from tools.bench.running import Status
from tools.docs.performance_plot import history_plot

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "performance.md"
PLOT: Final = DOCS / "performance" / "history.svg"
COMMAND: Final = 'make bench ARGS="all --json"'
MET: Final = {True: "met", False: "**missed**", None: ""}
INTRODUCTION: Final = f"""\
# Performance figures

The table has the figures of kraftsim and, from the same run, of Apache Kafka and other peers; the
event log is on at its default level. A figure is the median of its rounds, with the best and the
worst in brackets; a ratio says how many times as good as the peer kraftsim is, whatever the unit.
Compare the ratios: absolute figures depend on the machine. The basis *cpu* is CPU time, which
hardly depends on other work on the machine; *wall* does; *size* is bytes.

`{COMMAND}` measures all benches (`--quick`: some, in less than ten minutes), keeps the record in
`tools/bench/history/`, one file per commit, and writes this page from it. If Java and Maven are
installed, Apache Kafka runs in the same bench with the flags of its own start script. `make bench
ARGS=ids` runs one bench. `make bench-compare` compares this tree with the last release, in pairs of
runs in alternate order, and fails if a figure is worse beyond noise. The goals are in
`tools/bench/goals.toml`.
"""
EXPLANATIONS: Final = """\
## Explanations

What limits each figure, and tables of single measurements; each of these names its command, date
and commit. Unless a page says otherwise: 2 shared cores of an x86-64 virtual machine with 24 GiB,
CPython 3.11.7, uvloop 0.23, OpenJDK 17, load average about 1.

- [Nodes](performance/nodes.md): start, InitProducerId, frames, copies, large requests, recovery
- [Codec and imports](performance/codecs.md)
- [Traffic beside Apache Kafka](performance/traffic.md): produce, consume, latency, failover
- [Transactions beside Apache Kafka](performance/transactions.md)
- [A quorum of controllers](performance/quorum.md): failover, writes, start, 100,000 partitions
- [Migration from ZooKeeper beside Apache Kafka](performance/migration.md)
- [Virtual time](performance/virtual-time.md): simulations, idle and under faults
- [Campaigns](performance/campaigns.md), and shrinking
- [The data pipeline](performance/data-pipeline.md), and reading log directories
- [The fault proxy](performance/proxy.md)
- [Tiered storage](performance/tiered-storage.md)
- [Design for speed](performance/design.md)
"""


def write_page() -> int:
    """Write the page and its plot."""
    records = read_history()
    PAGE.write_text(performance_page(records))
    PLOT.write_text(history_plot(records))
    print(f"written: {PAGE.name}, performance/{PLOT.name}")
    return 0


def performance_page(records: Sequence[SpeedRecord]) -> str:
    """Return the page of these records, the newest last."""
    parts = [INTRODUCTION]
    if records:
        newest = records[-1]
        parts += [_circumstances(newest), "\n".join(_table(newest)), _provenance(newest)]
        parts += ["\n".join(_not_measured(newest))]
        parts += [
            "## History",
            "The figures with a goal, of each record; the dashed line is the goal. A small dot is "
            "a record of the quick set.",
            "![The figures with a goal, by commit](performance/history.svg)",
        ]
    else:
        parts.append("There is no record yet.")
    return "\n\n".join(part.strip() for part in [*parts, EXPLANATIONS]) + "\n"


def _circumstances(record: SpeedRecord) -> str:
    machine = record.machine
    outcomes = [each.meets_goal for each in record.figures if each.meets_goal is not None]
    software = ", ".join(
        words
        for words in (
            machine.python,
            f"uvloop {machine.uvloop}" if machine.uvloop else "",
            f"librdkafka {machine.librdkafka}" if machine.librdkafka else "",
            machine.java.replace('"', "") or "no Java",
        )
        if words
    )
    least, most = record.load
    notes = [
        f"Machine: {machine.cpu}, {machine.cores} cores, {machine.memory_mib / 1024:.0f} GiB, "
        f"{machine.kernel}; {software}. Load average before a bench: {least:.1f} to {most:.1f}.",
        f"{sum(outcomes)} of {len(outcomes)} goals that were measured are met.",
    ]
    if most > machine.cores:
        notes.append("There was other work on the machine: wall-clock figures are only a trial.")
    if record.is_quick:
        notes.append("This is the quick set: fewer benches, with fewer rounds.")
    if record.is_dirty:
        notes.append("Files differed from the commit.")
    return " ".join(notes)


def _table(record: SpeedRecord) -> list[str]:
    rows = [
        "| figure | what | basis | kraftsim | peer, same run | ratio | goal | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return rows + [_row(figure) for figure in record.figures]


def _row(figure: Figure) -> str:
    goal = goals().get(figure.name)
    cells = (
        f"`{figure.name}`",
        figure.title,
        figure.basis.value,
        figure.amount(),
        f"{figure.peer} {figure.peer_amount()}".strip(),
        "" if figure.ratio is None else str(figure.ratio),
        "" if goal is None else goal.words(figure.unit),
        MET[figure.meets_goal],
    )
    line = " | ".join(each.replace("|", "\\|").replace("<", "&lt;") for each in cells)
    return f"| {line} |".replace("|  |", "| |").replace("|  |", "| |")


def _provenance(record: SpeedRecord) -> str:
    """The line that names command, date and commit: `tests/house/test_measured.py`."""
    all_of_them = [
        name for name, bench in BENCHES.items() if bench.quick is not None or not record.is_quick
    ]
    names = [name for name in all_of_them if name in record.benches]
    words = "all" if names == all_of_them else " ".join(names)
    command = f'make bench ARGS="{words} --json{" --quick" * record.is_quick}"'
    return f"Measured: `{command}`, {record.date}, {record.commit}"


def _not_measured(record: SpeedRecord) -> list[str]:
    """Return what the record lacks: benches that failed or could not run, those without figures,
    and goals of figures that were not measured.
    """
    lines = ["Not in the table:", ""]
    by_reason: dict[str, list[str]] = {}
    for name in BENCHES:
        result = record.benches.get(name)
        if result is None:
            by_reason.setdefault("not in this record", []).append(name)
        elif result.status is not Status.OK or result.reason:
            reason = result.reason or result.status.value
            by_reason.setdefault(f"{result.status.value}, {reason}", []).append(name)
    lines += [
        f"- {', '.join(f'`{name}`' for name in names)}: {reason}"
        for reason, names in by_reason.items()
    ]
    measured = {each.name for each in record.figures if each.meets_goal is not None}
    unmeasured = [name for name in goals() if name not in measured]
    if unmeasured:
        lines.append(f"- goals of {', '.join(f'`{name}`' for name in unmeasured)}: not measured")
    return lines if len(lines) > 2 else []
