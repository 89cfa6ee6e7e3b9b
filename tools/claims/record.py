"""`docs/claims.json`: the last measured figures, with their date; tests compare their figures with
it.

The rows are defined in `tools/claims/`; only `make claims` writes this file.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypedDict

FILE: Final = Path(__file__).parents[2] / "docs" / "claims.json"


class Measured(TypedDict):
    """The result of a check. `again`: the make target that runs it again and fails on drift.
    `commit`: the youngest main-line commit in the history of the measured code; with a `+` it had
    further changes, which were committed with the figure.
    """

    passed: bool
    figures: dict[str, object]
    again: str
    date: str
    commit: str


class RowResult(TypedDict):
    """A row with its verdict."""

    id: str
    starred: bool
    kind: str
    claim: str
    shipped: str
    checks: list[str]
    conditions: dict[str, str]
    verdict: str
    argued: str
    measured: str


class Record(TypedDict):
    """The file."""

    checks: dict[str, Measured]
    rows: list[RowResult]


def read_record() -> Record:
    """Return the stored record; empty if there is no file."""
    if not FILE.exists():
        return {"checks": {}, "rows": []}
    found: Record = json.loads(FILE.read_text())
    return found


def write_record(record: Record) -> None:
    """Write the file, one check and one row to a line."""
    checks = ",\n".join(
        f" {json.dumps(name)}: {json.dumps(each)}"
        for name, each in sorted(record["checks"].items())
    )
    rows = ",\n".join(f" {json.dumps(row)}" for row in record["rows"])
    FILE.write_text(f'{{"checks": {{\n{checks}\n}},\n"rows": [\n{rows}\n]}}\n')


def as_stored(figures: Mapping[str, object]) -> dict[str, object]:
    """Return figures as they are read back from the file."""
    found: dict[str, object] = json.loads(json.dumps(figures))
    return found


def unfounded(
    check: str, found: Iterable[str], stored: Mapping[str, object], rows: Sequence[str]
) -> list[str]:
    """Return a line for each figure in the file that a complete run of its check did not
    measure.
    """
    order = f'make claims ARGS="--only {" ".join(rows)}"'
    return [
        f"{check}: nothing measures {name}, docs/claims.json says {stored[name]!r}; run: {order}"
        for name in sorted({*stored} - {*found})
    ]


def drift(
    check: str, found: Mapping[str, object], stored: Mapping[str, object], rows: Sequence[str]
) -> list[str]:
    """Return a line for each figure that differs from the file, with the command to update it."""
    order = f'make claims ARGS="--only {" ".join(rows)}"'
    return [
        (
            f"{check}: {name} is {value!r}, docs/claims.json says "
            f"{stored.get(name, 'nothing of it')!r}; if that is meant, run: {order}"
        )
        for name, value in as_stored(found).items()
        if name not in stored or stored[name] != value
    ]
