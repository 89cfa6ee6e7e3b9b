"""`make coverage` measures test directories that exist, and fails below its floor."""

import re
import tomllib
from pathlib import Path

from tools.coverage_table import table, total_of, verdict

PROJECT_ROOT = Path(__file__).parents[2]
FILES = {
    "kraftsim/raft/rules_log.py": {
        "num_statements": 6,
        "covered_lines": 5,
        "num_branches": 4,
        "covered_branches": 1,
    },
    "kraftsim/lab/faults/field.py": {
        "num_statements": 10,
        "covered_lines": 0,
        "num_branches": 0,
        "covered_branches": 0,
    },
    "kraftsim/lab/bugs/__init__.py": {
        "num_statements": 0,
        "covered_lines": 0,
        "num_branches": 0,
        "covered_branches": 0,
    },
}


def test_table_has_a_line_for_each_folder_and_the_total() -> None:
    """Lines and branches count alike: (5 + 1) of (6 + 4), (5 + 1 + 0) of (6 + 4 + 10)."""
    head, *rows = [line.split() for line in table(FILES)]
    assert head == ["folder", "lines", "branches", "covered"]
    assert rows == [
        ["kraftsim/lab", "10", "0", "0.0", "%"],
        ["kraftsim/raft", "6", "4", "60.0", "%"],
        ["total", "16", "4", "30.0", "%"],
    ]


def test_total_below_the_floor_is_reported() -> None:
    total = total_of(FILES.values()).percent
    assert verdict(total, 30) == "30.00 % reach the floor of 30 %"
    assert "are below the floor of 31 %" in verdict(total, 31)


def test_floor_is_the_measured_value_rounded_down() -> None:
    """CONTRIBUTING.md says what was measured, and with which command."""
    settings = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["tool"]["coverage"]
    text = (PROJECT_ROOT / "CONTRIBUTING.md").read_text()
    found = re.search(r"covers (\d+\.\d+) %.*?\n\nMeasured: `make coverage`, ", text, flags=re.S)
    assert found is not None
    assert settings["report"]["fail_under"] == int(float(found[1]))
    assert settings["run"]["branch"] and settings["run"]["source"] == ["kraftsim", "protocol"]
