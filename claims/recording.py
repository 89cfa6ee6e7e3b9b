"""The figures that tests record: kept for `make claims`, and in every other run held against docs/claims.json.

A test asks for the fixture `figures` and calls it with names and values: `figures(batches_read=4)`. Figures of all cases of a
parametrized test go together, so that each name stands for one value.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from claims.record import as_stored, drift, read_record

OPTION = "--write-figures"


class Recorder:
    """Keeps outcomes and figures of a run of tests; `file` is None where figures are only compared."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._found: dict[str, dict[str, object]] = {}
        self._outcomes: dict[str, Counter[str]] = {}
        self._stored = read_record()

    def record(self, node_id: str, **figures: object) -> None:
        """Keep figures of a test, or compare them. Raises AssertionError for a figure that is another one than before."""
        check = node_id.partition("[")[0]
        told = self._found.setdefault(check, {})
        figures = {re.sub(r"\W", "_", name): value for name, value in figures.items()}
        for name, value in as_stored(figures).items():
            assert told.setdefault(name, value) == value, f"{check}: {name} was {told[name]!r} in another case and is {value!r}"
        if self._file is None:
            rows = [row["id"] for row in self._stored["rows"] if check in row["checks"]]
            known = self._stored["checks"].get(check, {"figures": {}})["figures"]
            assert not (differing := drift(check, figures, known, rows)), "\n".join(differing)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count how a test ended."""
        if report.when == "call" or report.outcome != "passed":
            self._outcomes.setdefault(report.nodeid.partition("[")[0], Counter())[report.outcome] += 1

    def pytest_sessionfinish(self) -> None:
        """Write what was found, if that was asked for."""
        if self._file is not None:
            rows = {name: {"outcomes": outcomes, "figures": self._found.get(name, {})} for name, outcomes in self._outcomes.items()}
            self._file.write_text(json.dumps(rows))
