"""`make claims`: runs the checks of the rows, and writes docs/claims.json, from which `make docs`
makes a page.

python -m tools.claims [--only ID ...] [--quick] [--stale]

Tests run in one process, then each other check is measured. A check of several rows runs once.
`--quick` omits checks that measure wall-clock or CPU time; omitted checks keep their figures. Exits
1 if a check failed or a figure in the sentence of a row is missing.
"""

import argparse
import datetime
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.claims.checks import CHECKS, CLAIMS, INTEROP, TEST
from tools.claims.history import foreign_commits, measured_commit
from tools.claims.measured_tests import measure_tests
from tools.claims.record import Measured, Record, as_stored, read_record, write_record
from tools.claims.row import FAILED
from tools.claims.row_result import row_result
from tools.claims.rows import ROWS

PROJECT_ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run the checks, and write the record."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.claims",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="+", metavar="ID", default=[], help="rows, for example 730-08"
    )
    parser.add_argument("--quick", action="store_true", help="omit checks that measure time")
    parser.add_argument("--missing", action="store_true", help="run only checks without figures")
    parser.add_argument(
        "--stale",
        action="store_true",
        help="run only checks without figures, or measured at a commit outside this history",
    )
    parser.add_argument(
        "--write-only", action="store_true", help="run nothing; write the rows again"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.only) - {row.id for row in ROWS})
    if unknown:
        print(f"unknown row {unknown[0]}; an example of a row id is {ROWS[0].id}", file=sys.stderr)
        return 3
    wanted = dict.fromkeys(
        check for row in ROWS if not options.only or row.id in options.only for check in row.checks
    )
    record = read_record()
    if options.missing or options.stale:
        foreign = (
            foreign_commits(each["commit"] for each in record["checks"].values())
            if options.stale
            else ()
        )
        checks = {
            name: each
            for name, each in record["checks"].items()
            if each["passed"] and each["commit"] not in foreign
        }
        wanted = {name: None for name in wanted if name not in checks}
    found = {}
    if not options.write_only:
        found = _measure(
            [
                name
                for name in wanted
                if not (options.quick and name in CHECKS and CHECKS[name].again == CLAIMS)
            ]
        )
    record = read_record()
    record["checks"].update(found)
    used = {check for row in ROWS for check in row.checks}
    record["checks"] = {name: each for name, each in record["checks"].items() if name in used}
    failed = _write_rows(record)
    write_record(record)
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


def _measure(wanted: Sequence[str]) -> dict[str, Measured]:
    """Run each check, and return its result."""
    measured: dict[str, Measured] = {}
    tests = [name for name in wanted if name not in CHECKS]
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    commit = measured_commit()

    def keep(name: str, *, passed: bool, figures: dict[str, object], again: str) -> None:
        measured[name] = Measured(
            passed=passed, figures=as_stored(figures), again=again, date=date, commit=commit
        )

    if tests:
        print(f"{len(tests)} tests and test files", flush=True)
        for name, found in measure_tests(tests, PROJECT_ROOT).items():
            keep(
                name,
                passed=found.passed,
                figures=found.figures,
                again=INTEROP if found.is_interop else TEST,
            )
    check = [CHECKS[name] for name in wanted if name in CHECKS]
    for place, run in enumerate(check, 1):
        began = time.process_time()
        print(f"[{place}/{len(check)}] {run.name}", end=" ... ", flush=True)
        try:
            keep(run.name, passed=True, figures=run.measure(), again=run.again)
        except (AssertionError, RuntimeError) as trouble:
            keep(run.name, passed=False, figures={}, again=run.again)
            print(f"failed: {trouble}", end=" ")
        print(f"{time.process_time() - began:.1f} CPU s", flush=True)
    return measured


def _write_rows(record: Record) -> Iterable[str]:
    """Compute the rows of the record; return a line for each that is not shown."""
    record["rows"] = [row_result(row, record["checks"]) for row in ROWS]
    return [
        f"{each['id']}: {each['measured']}" for each in record["rows"] if each["verdict"] == FAILED
    ]


if __name__ == "__main__":
    sys.exit(main())
