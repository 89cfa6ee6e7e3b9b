"""The figures that tests record: stored for `make claims`, and compared with docs/claims.json in
every other run.

A test uses the fixture `figures` and calls it with names and values: `figures(batches_read=4)`. The
figures of all cases of a parametrized test are merged, so each name has one value.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Protocol

import pytest

from tools.claims.record import as_stored, drift, read_record, unfounded

OPTION = "--write-figures"


class Figures(Protocol):
    """What the fixture `figures` gives a test."""

    def __call__(self, **figures: object) -> None:
        """Store the figures of this test, or compare them: `Recorder.record`."""


class Recorder:
    """Collects outcomes and figures of a test run; `file` is None if figures are only compared."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._found: dict[str, dict[str, object]] = {}
        self._outcomes: dict[str, Counter[str]] = {}
        self.lines: list[str] = []
        self._collected: Counter[str] = Counter()
        self._stored = read_record()

    def record(self, node_id: str, **figures: object) -> None:
        """Store the figures of a test, or compare them.

        Raises AssertionError for a figure that differs from an earlier one.
        """
        check = node_id.partition("[")[0]
        recorded = self._found.setdefault(check, {})
        figures = {re.sub(r"\W", "_", name): value for name, value in figures.items()}
        for name, value in as_stored(figures).items():
            assert recorded.setdefault(name, value) == value, (
                f"{check}: {name} was {recorded[name]!r} in another case and is {value!r}"
            )
        if self._file is None:
            known = self._stored["checks"].get(check, {"figures": {}})["figures"]
            assert not (differing := drift(check, figures, known, self._rows_of(check))), "\n".join(
                differing
            )

    def unmeasured(self) -> list[str]:
        """Return a line for each figure in docs/claims.json that no case recorded, for tests with
        all cases passed in this run.
        """
        lines = []
        for check, measured in self._stored["checks"].items():
            own = [
                test for test in self._collected if test == check or test.startswith(f"{check}::")
            ]
            if own and all(
                self._outcomes.get(test, {}) == {"passed": self._collected[test]} for test in own
            ):
                found = {name for test in own for name in self._found.get(test, {})}
                lines += unfounded(check, found, measured["figures"], self._rows_of(check))
        return lines

    def _rows_of(self, check: str) -> list[str]:
        return [row["id"] for row in self._stored["rows"] if check in row["checks"]]

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Count the cases of a test, including deselected ones."""
        self._collected[item.nodeid.partition("[")[0]] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the outcome of a test."""
        if report.when == "call" or report.outcome != "passed":
            self._outcomes.setdefault(report.nodeid.partition("[")[0], Counter())[
                report.outcome
            ] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the figures if requested; otherwise fail the run for figures that no test
        measures.
        """
        if self._file is None:
            config = session.config
            is_of_all_cases = not config.getoption("more_seeds") and not any(
                "[" in asked for asked in config.args
            )
            self.lines = self.unmeasured() if is_of_all_cases else []
            session.exitstatus = (
                (session.exitstatus or pytest.ExitCode.TESTS_FAILED)
                if self.lines
                else session.exitstatus
            )
        else:
            rows = {
                name: {"outcomes": outcomes, "figures": self._found.get(name, {})}
                for name, outcomes in self._outcomes.items()
            }
            self._file.write_text(json.dumps(rows))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show why the run failed."""
        for line in self.lines:
            terminalreporter.write_line(line, red=True)
