"""The figures that tests record: kept for `make claims`, and in every other run held against docs/claims.json.

A test asks for the fixture `figures` and calls it with names and values: `figures(batches_read=4)`. Figures of all cases of a
parametrized test go together, so that each name stands for one value.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from claims.record import as_stored, drift, read_record, unfounded

OPTION = "--write-figures"


class Recorder:
    """Keeps outcomes and figures of a run of tests; `file` is None where figures are only compared."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._found: dict[str, dict[str, object]] = {}
        self._outcomes: dict[str, Counter[str]] = {}
        self.lines: list[str] = []
        self._collected: Counter[str] = Counter()
        self._stored = read_record()

    def record(self, node_id: str, **figures: object) -> None:
        """Keep figures of a test, or compare them. Raises AssertionError for a figure that is another one than before."""
        check = node_id.partition("[")[0]
        told = self._found.setdefault(check, {})
        figures = {re.sub(r"\W", "_", name): value for name, value in figures.items()}
        for name, value in as_stored(figures).items():
            assert told.setdefault(name, value) == value, f"{check}: {name} was {told[name]!r} in another case and is {value!r}"
        if self._file is None:
            known = self._stored["checks"].get(check, {"figures": {}})["figures"]
            assert not (differing := drift(check, figures, known, self._rows_of(check))), "\n".join(differing)

    def unmeasured(self) -> list[str]:
        """Return a line for each figure of docs/claims.json that no case recorded, of tests whose cases all passed in this run."""
        lines = []
        for check, measured in self._stored["checks"].items():
            own = [test for test in self._collected if test == check or test.startswith(f"{check}::")]
            if own and all(self._outcomes.get(test, {}) == {"passed": self._collected[test]} for test in own):
                found = {name for test in own for name in self._found.get(test, {})}
                lines += unfounded(check, found, measured["figures"], self._rows_of(check))
        return lines

    def _rows_of(self, check: str) -> list[str]:
        return [row["id"] for row in self._stored["rows"] if check in row["checks"]]

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Count the cases of a test, those too that are left out afterwards."""
        self._collected[item.nodeid.partition("[")[0]] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count how a test ended."""
        if report.when == "call" or report.outcome != "passed":
            self._outcomes.setdefault(report.nodeid.partition("[")[0], Counter())[report.outcome] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write what was found, if that was asked for; else the run fails for figures that nothing measures."""
        if self._file is None:
            config = session.config
            is_of_all_cases = not config.getoption("more_seeds") and not any("[" in asked for asked in config.args)
            self.lines = self.unmeasured() if is_of_all_cases else []
            session.exitstatus = (session.exitstatus or pytest.ExitCode.TESTS_FAILED) if self.lines else session.exitstatus
        else:
            rows = {name: {"outcomes": outcomes, "figures": self._found.get(name, {})} for name, outcomes in self._outcomes.items()}
            self._file.write_text(json.dumps(rows))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show why the run failed."""
        for line in self.lines:
            terminalreporter.write_line(line, red=True)
