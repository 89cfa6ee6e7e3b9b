"""`docs/claims.json`: what was measured last, and when; tests hold their figures against it.

Source of the rows is `claims/`; this file is written by `make claims` alone.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypedDict

FILE: Final = Path(__file__).parents[1] / "docs" / "claims.json"


class Measured(TypedDict):
    """What a check came to. `again`: which verb plays it again and fails on drift. `commit`: the youngest commit of the main line that the
    measured code has; with a `+` it had changes beyond that, which came with the figure.
    """

    passed: bool
    figures: dict[str, object]
    again: str
    date: str
    commit: str


class Told(TypedDict):
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
    rows: list[Told]


def read_record() -> Record:
    """Return what was measured last; nothing where there is no file."""
    if not FILE.exists():
        return {"checks": {}, "rows": []}
    found: Record = json.loads(FILE.read_text())
    return found


def write_record(record: Record) -> None:
    """Write the file, one check and one row to a line."""
    checks = ",\n".join(f" {json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(record["checks"].items()))
    rows = ",\n".join(f" {json.dumps(row)}" for row in record["rows"])
    FILE.write_text(f'{{"checks": {{\n{checks}\n}},\n"rows": [\n{rows}\n]}}\n')


def as_stored(figures: Mapping[str, object]) -> dict[str, object]:
    """Return figures as they come back out of a file."""
    found: dict[str, object] = json.loads(json.dumps(figures))
    return found


def unfounded(check: str, found: Iterable[str], stored: Mapping[str, object], rows: Sequence[str]) -> list[str]:
    """Return a line for each figure of the file that nothing measured when all of a check was played."""
    order = f'make claims ARGS="--only {" ".join(rows)}"'
    return [f"{check}: nothing measures {name}, docs/claims.json says {stored[name]!r}; run: {order}" for name in sorted({*stored} - {*found})]


def drift(check: str, found: Mapping[str, object], stored: Mapping[str, object], rows: Sequence[str]) -> list[str]:
    """Return a line for each figure that is another one than the file says, with what to run."""
    order = f'make claims ARGS="--only {" ".join(rows)}"'
    return [
        f"{check}: {name} is {value!r}, docs/claims.json says {stored.get(name, 'nothing of it')!r}; if that is meant, run: {order}"
        for name, value in as_stored(found).items()
        if name not in stored or stored[name] != value
    ]
