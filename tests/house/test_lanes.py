"""`make test` runs every directory of tests exactly once, whichever lanes it is made of."""

import os
import re
import subprocess
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
INHERITED = ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
"""What the make that runs this test would tell the one that is asked."""


def lines_of(*words: str) -> list[str]:
    """What make would call pytest with."""
    own = {name: value for name, value in os.environ.items() if name not in INHERITED}
    told = subprocess.run(["make", "--dry-run", *words], cwd=HOUSE, env=own, capture_output=True, text=True, check=True).stdout
    return [line for line in told.splitlines() if " -m pytest " in line]


@pytest.mark.parametrize(("target", "times"), [("test", 1), ("interop", 2)])
def test_every_directory_with_tests_is_in_one_lane(target: str, times: int):
    """A lane of `make interop` names its directories twice: in the command that retries, too."""
    there = {file.parent.relative_to(HOUSE).as_posix() for file in (HOUSE / "tests").glob("*/test_*.py")}
    asked = [word for line in lines_of(target) for word in line.replace(";", "").split() if re.fullmatch(r"tests/\w+", word)]
    assert sorted(asked) == sorted([*there] * times)


def test_arguments_take_the_place_of_lanes():
    (line,) = lines_of("test", "ARGS=tests/wire -x")
    assert line.endswith('-m "not interop" tests/wire -x')
