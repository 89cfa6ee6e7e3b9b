"""The tables that a campaign over Spark leaves, as Parquet files below OUT/tables, and its page.

Each campaign adds one file to each table, so that campaigns of several commits in one directory can
be compared: `commit` and `started` distinguish them.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from kraftsim.events.catalogue import KINDS

TABLES: Final = "tables"
PAGE: Final = "campaign.html"
BAR_WIDTH: Final = 320
ROWS_SHOWN: Final = 60


class SeedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run: `run` is its name in the dataset; times in seconds."""

    commit: str
    started: str
    run: str
    scenario: str
    seed: int
    release: str
    bugs: str
    outcome: str
    events: int
    virtual_s: float
    cpu_s: float


class FaultRow(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of one kind in one run; `effective` ones changed something."""

    commit: str
    run: str
    scenario: str
    seed: int
    fault: str
    armed: int
    fired: int
    effective: int


class VerdictRow(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one invariant in one run, by the check while it ran and by SQL."""

    commit: str
    run: str
    scenario: str
    seed: int
    invariant: str
    online: str
    offline: str
    examined: int
    violations: int


class ExercisedRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many events of a kind one run has; a row with 0 and no run for a kind that no run has."""

    commit: str
    run: str
    scenario: str
    kind: str
    events: int


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """How often a state machine went from one state to another in a run; '' is no state yet."""

    commit: str
    run: str
    scenario: str
    machine: str
    from_state: str
    to_state: str
    events: int


class CodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a rule function's statements one run executed: `line` is that of its `def`."""

    commit: str
    run: str
    scenario: str
    file: str
    function: str
    line: int
    statements: int
    executed: int


class UnexecutedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A statement of the rules that no run of a campaign executed (`kind` is `line`), or a
    condition that was always left in the same way (`branch`).
    """

    commit: str
    file: str
    function: str
    line: int
    kind: str
    text: str


class CampaignRows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one campaign."""

    seeds: tuple[SeedRow, ...]
    faults: tuple[FaultRow, ...]
    verdicts: tuple[VerdictRow, ...]
    exercised: tuple[ExercisedRow, ...]
    steps: tuple[StepRow, ...] = ()
    code: tuple[CodeRow, ...] = ()
    unexecuted: tuple[UnexecutedRow, ...] = ()
    """Both are empty if the campaign did not record code paths."""


_ARROW: Final = {str: pa.string(), int: pa.int64(), float: pa.float64()}
_KINDS_OF_ROWS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "seeds": SeedRow,
    "faults": FaultRow,
    "verdicts": VerdictRow,
    "exercised": ExercisedRow,
    "steps": StepRow,
    "code": CodeRow,
    "unexecuted": UnexecutedRow,
}


def never_exercised(kinds: Sequence[str], commit: str) -> list[ExercisedRow]:
    """Return a row for each kind of event that is not among those that occurred."""
    return [
        ExercisedRow(commit=commit, run="", scenario="", kind=kind, events=0)
        for kind in KINDS
        if kind not in set(kinds)
    ]


def write_tables(out: Path, rows: CampaignRows, name: str) -> None:
    """Add the rows of a campaign to the tables below a directory."""
    for table, kind in _KINDS_OF_ROWS.items():
        schema = pa.schema(
            [(field.name, _ARROW[field.type]) for field in msgspec.structs.fields(kind)]
        )
        values = [msgspec.structs.asdict(row) for row in getattr(rows, table)]
        path = out / TABLES / table / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(values, schema), path, compression="zstd")


def write_page(out: Path, rows: CampaignRows) -> Path:
    """Write the page of a campaign, one self-contained HTML file, and return its path."""
    by_outcome = _added((row.outcome, 1) for row in rows.seeds)
    by_scenario = _added((row.scenario, row.cpu_s) for row in rows.seeds)
    effective = _added((row.fault, row.effective) for row in rows.faults)
    fired = _added((row.fault, row.fired) for row in rows.faults)
    violated = _added((row.invariant, 1) for row in rows.verdicts if row.online == "violated")
    found_by = _added(
        (fault.fault, 1)
        for fault in rows.faults
        if fault.effective
        and any(seed.run == fault.run and seed.outcome == "violated" for seed in rows.seeds)
    )
    examined = _added((row.invariant, row.examined) for row in rows.verdicts)
    steps = _added(
        (f"{row.machine}: {row.from_state or 'none'} to {row.to_state}", row.events)
        for row in rows.steps
    )
    unexecuted = _added((row.file, 1) for row in rows.unexecuted)
    idle = [name for name, count in examined.items() if not count]
    unused = [row.kind for row in rows.exercised if not row.run]
    commit = rows.seeds[0].commit if rows.seeds else ""
    parts = [
        _section("Outcomes", "runs", by_outcome),
        _section("CPU seconds", "by scenario", by_scenario),
        _section("Effective faults", "by kind; runs may have many", effective),
        _section("Fired faults", "by kind", fired),
        _section("Violated invariants", "runs", violated),
        _section("Faults in violated runs", "runs in which the kind was effective", found_by),
        _section("Examined events", "by invariant", examined),
        _section("Steps of state machines", "by machine and states", steps),
        *(
            [_section("Rules that no run executes", "lines and ways out of conditions", unexecuted)]
            if rows.code
            else []
        ),
        _names("Invariants that examined nothing", idle),
        _names("Kinds of events that no run has", unused),
    ]
    page = (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>kraftsim campaign</title>"
        "<style>body{font:15px system-ui;margin:2rem auto;max-width:60rem;padding:0 1rem}"
        "table{border-collapse:collapse}td{padding:1px 8px}td:nth-child(2){text-align:right}"
        "rect{fill:#4477aa}</style>"
        f"<h1>Campaign of {len(rows.seeds):,} runs</h1>"
        f"<p>{html.escape(f'commit {commit}' if commit else 'no commit known')}. Tables: "
        "<code>kraftsim sql --tables DIR</code></p>" + "".join(parts) + "</html>"
    )
    path = out / PAGE
    path.write_text(page, encoding="utf-8")
    return path


def _added(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, number in pairs:
        found[name] = found.get(name, 0) + number
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _section(title: str, unit: str, numbers: Mapping[str, float]) -> str:
    if not numbers:
        return f"<h2>{html.escape(title)}</h2><p>none</p>"
    most = max(numbers.values()) or 1
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{number:,.10g}</td><td>"
        f"<svg width='{BAR_WIDTH}' height='12' role='img' aria-label='{number:,.10g}'>"
        f"<rect width='{BAR_WIDTH * number / most:.1f}' height='12'/></svg></td></tr>"
        for name, number in list(numbers.items())[:ROWS_SHOWN]
    )
    rest = len(numbers) - ROWS_SHOWN
    more = f"<p>and {rest} more in the table</p>" if rest > 0 else ""
    return f"<h2>{html.escape(title)}</h2><p>{html.escape(unit)}</p><table>{rows}</table>{more}"


def _names(title: str, names: Sequence[str]) -> str:
    listed = ", ".join(f"<code>{html.escape(name)}</code>" for name in names) or "none"
    return f"<h2>{html.escape(title)}</h2><p>{listed}</p>"
