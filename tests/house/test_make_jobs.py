"""`make test` runs every file of tests exactly once over all its parallel jobs."""

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
def test_every_test_file_is_in_one_make_test_job(target: str, times: int) -> None:
    """A job names directories, or files of one; one of `make interop` names them twice: also in the
    retry command.
    """
    there = (PROJECT_ROOT / "tests").glob("*/test_*.py")
    asked = [
        file
        for line in lines_of(target)
        for word in line.replace(";", "").split()
        if re.fullmatch(r"tests/[\w/.]+", word)
        for file in files_of(PROJECT_ROOT / word)
    ]
    assert sorted(asked) == sorted([*there] * times)


def files_of(place: Path) -> list[Path]:
    """The test files that a word of a command means."""
    return [place] if place.is_file() else list(place.glob("test_*.py"))


def test_arguments_replace_the_default_test_jobs() -> None:
    (line,) = lines_of("test", "ARGS=tests/wire -x")
    assert line.endswith('-m "not interop" tests/wire -x')
