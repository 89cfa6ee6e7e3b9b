"""Prints the coverage of `make coverage` by folder, and fails below the floor.

    python -m tools.coverage_table

Reads the data of coverage.py (`[tool.coverage]` in pyproject.toml), and writes `table.txt`,
`coverage.json` and the pages of `html` to `build/coverage`. The floor is `fail_under`.

Not counted: code that the codec generates, and what tests run in processes of their own.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "coverage"


@dataclass
class Row:
    """Counts of a folder: lines that can run, ways out of a condition, and those that were
    taken.
    """

    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_run: int = 0

    @property
    def percent(self) -> float:
        """Of lines and branches together, as coverage.py counts them."""
        whole = self.lines + self.branches
        return 100 * (self.lines_run + self.branches_run) / whole if whole else 100.0

    def add(self, summary: Mapping[str, int]) -> None:
        """Add a file's summary of `coverage json`."""
        self.lines += summary["num_statements"]
        self.lines_run += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.branches_run += summary["covered_branches"]


def main() -> int:
    """Write the reports, print the table; 1 if the total is below the floor."""
    coverage = Coverage()
    coverage.load()
    report = BUILD / "coverage.json"
    coverage.json_report(outfile=str(report))
    coverage.html_report(directory=str(BUILD / "html"))
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    lines = table({file: found["summary"] for file, found in files.items()})
    (BUILD / "table.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    floor = coverage.get_option("report:fail_under")
    assert isinstance(floor, int | float), "pyproject.toml has a floor"
    total = total_of(found["summary"] for found in files.values()).percent
    print(f"\n{verdict(total, floor)}; pages: {(BUILD / 'html').relative_to(ROOT)}/index.html")
    return 0 if total >= floor else 1


def verdict(total: float, floor: float) -> str:
    """Whether the total reaches the floor, in words."""
    if total >= floor:
        return f"{total:.2f} % reach the floor of {floor:g} %"
    return f"{total:.2f} % are below the floor of {floor:g} % (fail_under in pyproject.toml)"


def total_of(summaries: Iterable[Mapping[str, int]]) -> Row:
    """Return the sums of all files."""
    row = Row()
    for summary in summaries:
        row.add(summary)
    return row


def table(files: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return lines of text: one for each folder, two levels deep, and the total."""
    folders: defaultdict[str, Row] = defaultdict(Row)
    for file, summary in files.items():
        folders["/".join(Path(file).parts[:-1][:2])].add(summary)
    width = max(map(len, [*folders, "folder"]))
    lines = [f"{'folder':{width}}  {'lines':>7} {'branches':>9} {'covered':>8}"]
    rows = [*sorted(folders.items()), ("total", total_of(files.values()))]
    lines += [
        f"{name:{width}}  {row.lines:7,} {row.branches:9,} {row.percent:6.1f} %"
        for name, row in rows
    ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
