"""The page of claims, from docs/claims.json: what five design documents claim, the checks, and
their results.

Rows are in `tools/claims/`; `make claims` runs their checks, and writes verdicts and figures.
tests/house/test_claims.py checks that all of them exist and that no row is missing.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from tools.claims.record import Record, RowResult, read_record
from tools.claims.row import VERDICTS
from tools.claims.rows import DOCUMENTS

INTRODUCTION: Final = """# Claims

The claims of five design documents, each in our own words, and the results of checking them: {rows}
rows. A star: implemented as a swappable component, not only measured. `make claims` runs the checks
of a row and writes their figures to `docs/claims.json`; the verdict is computed from them by the
row's conditions in `tools/claims/`. A verdict is about the document:

| verdict | condition |
|---|---|
{conditions}

A check is a test, a scenario (`kraftsim scenario NAME`; add `--out DIRECTORY`), a benchmark, or a
command; words after `#` name a part of it. `make test` and `make interop` run most of them again
and fail if a figure differs. [Comparing producers](../producer-variants.md) compares the designs.
The last table has the measured commit; with a `+` the code had further changes, which were
committed with the figure.

| document | {verdicts} |
|---|{dashes}
{counts}
"""
CONDITIONS: Final[Mapping[str, str]] = {
    "does not hold": "the condition of the claim is false for the figures",
    "differs from what shipped": (
        "the claim holds for an implementation of the document, and Apache Kafka's implementation "
        "has other figures"
    ),
    "holds with limits": (
        "the claim holds, and so does the condition of its limits, which the figures show"
    ),
    "holds": "all checks passed, and the condition of the claim is true",
    "argued": "no program can decide it; the reason is given",
    "not shown": "a check failed or has not run",
}
"""Verdicts, and when each is given."""


def claims_page() -> str:
    """Return the page."""
    record = read_record()
    rows = record["rows"]
    counted = {
        name: Counter(row["verdict"] for row in rows if document_of(row) == name)
        for name in DOCUMENTS
    }
    table = [
        f"| {title} | {' | '.join(str(counted[name][verdict]) for verdict in VERDICTS)} |"
        for name, title in DOCUMENTS.items()
    ]
    lines = [
        INTRODUCTION.format(
            rows=len(rows),
            conditions="\n".join(f"| {name} | {words} |" for name, words in CONDITIONS.items()),
            verdicts=" | ".join(VERDICTS),
            dashes="---|" * len(VERDICTS),
            counts="\n".join(table),
        )
    ]
    for name, title in DOCUMENTS.items():
        lines += [
            f"## {title}\n",
            "| id | claim | shipped Kafka differs? | verdict | measured | checks |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_line(row) for row in rows if document_of(row) == name]
        lines.append("")
    return "\n".join([*lines, *_measurements(record)])


def document_of(row: RowResult) -> str:
    """Return the document of a row."""
    return row["id"].partition("-")[0]


def _line(row: RowResult) -> str:
    star = "*" if row["starred"] else ""
    measured = f"{row['measured']}. Argued: {row['argued']}" if row["argued"] else row["measured"]
    cells = (row["id"] + star, row["claim"], row["shipped"], row["verdict"], measured)
    shown = " | ".join(
        cell.replace("|", chr(92) + "|").replace("*", chr(92) + "*").replace("<", "&lt;")
        for cell in cells
    )
    return f"| {shown} | {', '.join(map(_shown, row['checks']))} |"


def _measurements(record: Record) -> list[str]:
    """Return a table of the checks, their dates, and the make targets that run them again."""
    lines = [
        "## Checks\n",
        "| check | figures | run again by | date | commit |",
        "|---|---|---|---|---|",
    ]
    for name, each in record["checks"].items():
        lines.append(
            f"| {_shown(name)} | {len(each['figures'])} | `{each['again']}` | {each['date']} | "
            f"{each['commit']} |"
        )
    return [*lines, ""]


def _shown(check: str) -> str:
    """Return a check for display: of a test its name and file."""
    file, _, test = check.partition("::")
    return f"`{check}`" if not test else f"`{test}` ({file.rpartition('/')[2]})"
