"""`make test` runs every directory of tests exactly once over all its parallel jobs."""

import os
import re
import subprocess
from pathlib import Path

import pytest

PROJECT_ROOT = Path(__file__).parents[2]
INHERITED = ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
"""Environment variables of an enclosing make, which must not affect the one under test."""


def lines_of(*words: str) -> list[str]:
    """The pytest commands that make would run."""
    own = {name: value for name, value in os.environ.items() if name not in INHERITED}
    output = subprocess.run(
        ["make", "--dry-run", *words],
        cwd=PROJECT_ROOT,
        env=own,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [line for line in output.splitlines() if " -m pytest " in line]


@pytest.mark.parametrize(("target", "times"), [("test", 1), ("interop", 2)])
def test_every_test_directory_is_in_one_make_test_job(target: str, times: int) -> None:
    """A job of `make interop` names its directories twice: also in the retry command."""
    there = {
        file.parent.relative_to(PROJECT_ROOT).as_posix()
        for file in (PROJECT_ROOT / "tests").glob("*/test_*.py")
    }
    asked = [
        word
        for line in lines_of(target)
        for word in line.replace(";", "").split()
        if re.fullmatch(r"tests/\w+", word)
    ]
    assert sorted(asked) == sorted([*there] * times)


def test_arguments_replace_the_default_test_jobs() -> None:
    (line,) = lines_of("test", "ARGS=tests/wire -x")
    assert line.endswith('-m "not interop" tests/wire -x')
