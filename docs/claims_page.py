"""The page of claims, from docs/claims.json: what five design documents say, what plays it, and what came of it.

Rows are in `claims/`; `make claims` plays them, and writes verdicts and figures. tests/house/test_claims.py holds that all of that exists and that no
row is missing.
"""

from collections import Counter
from typing import Final

from claims.record import Record, Told, read_record
from claims.row import VERDICTS
from claims.rows import DOCUMENTS

INTRODUCTION: Final = """# Claims

What five design documents claim, each thing by itself and in our own words, and what came of it when it was played: {rows} rows. A star: it exists as
a part that can be swapped in, not only as a measurement. `make claims` plays the checks of a row and writes their figures into `docs/claims.json`; a
program derives the verdict from them by the row's conditions in `claims/`. A verdict is about the document:

| verdict | it follows from |
|---|---|
| does not hold | the condition of the claim is false for the figures |
| differs from what shipped | the claim holds where it is built as the document says, and the figures of Apache Kafka's way are others |
| holds with limits | the claim holds, and so does the condition of its limits, which the figures name |
| holds | all checks passed, and the condition of the claim is true |
| argued | no program decides it; the reason stands beside it |
| not shown | a check failed or has not been played |

A check is a test, a story (`kraftsim scenario NAME`; add `--out DIRECTORY`), a bench, or a verb; words after `#` say which part of it. `make test`
and `make interop` play most of them again and fail where a figure is another one. [Comparing producers](../producer-variants.md) has the designs
side by side. The last table names the commit that was measured; with a `+` the code had changes beyond it, which were committed with the figure.

| document | {verdicts} |
|---|{dashes}
{counts}
"""


def claims_page() -> str:
    """Return the page."""
    record = read_record()
    rows = record["rows"]
    counted = {name: Counter(row["verdict"] for row in rows if document_of(row) == name) for name in DOCUMENTS}
    table = [f"| {title} | {' | '.join(str(counted[name][verdict]) for verdict in VERDICTS)} |" for name, title in DOCUMENTS.items()]
    lines = [INTRODUCTION.format(rows=len(rows), verdicts=" | ".join(VERDICTS), dashes="---|" * len(VERDICTS), counts="\n".join(table))]
    for name, title in DOCUMENTS.items():
        lines += [f"## {title}\n", "| id | it says | shipped Kafka differs? | verdict | measured | checks |", "|---|---|---|---|---|---|"]
        lines += [_line(row) for row in rows if document_of(row) == name]
        lines.append("")
    return "\n".join([*lines, *_measurements(record)])


def document_of(row: Told) -> str:
    """Return which document a row is of."""
    return row["id"].partition("-")[0]


def _line(row: Told) -> str:
    star = "*" if row["starred"] else ""
    measured = f"{row['measured']}. Argued: {row['argued']}" if row["argued"] else row["measured"]
    cells = (row["id"] + star, row["claim"], row["shipped"], row["verdict"], measured)
    shown = " | ".join(cell.replace("|", chr(92) + "|").replace("*", chr(92) + "*").replace("<", "&lt;") for cell in cells)
    return f"| {shown} | {', '.join(map(_shown, row['checks']))} |"


def _measurements(record: Record) -> list[str]:
    """Return a table of what was played, when, and what plays it again."""
    lines = ["## What was played\n", "| check | figures | played again by | date | commit |", "|---|---|---|---|---|"]
    for name, each in record["checks"].items():
        lines.append(f"| {_shown(name)} | {len(each['figures'])} | `{each['again']}` | {each['date']} | {each['commit']} |")
    return [*lines, ""]


def _shown(check: str) -> str:
    """Return a check as it is shown: of a test the sentence."""
    file, _, test = check.partition("::")
    return f"`{check}`" if not test else f"`{test}` ({file.rpartition('/')[2]})"
