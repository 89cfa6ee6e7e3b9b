"""`make check`: which tests run for a change, and in which order."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.check import DEADLINE, FAR, ROOT, import_graph, near_tests

GRAPH = {
    "kraftsim/a.py": ["kraftsim/b.py", "tests/test_a.py"],
    "kraftsim/b.py": ["kraftsim/c.py", "tests/test_b.py"],
    "kraftsim/c.py": ["kraftsim/d.py", "tests/harness.py"],
    "kraftsim/d.py": ["tests/test_d.py"],
    "tests/harness.py": ["tests/test_c.py"],
}


def test_tests_are_ordered_by_how_many_imports_they_are_away() -> None:
    assert near_tests(["kraftsim/b.py"], GRAPH) == [
        (1, "tests/test_b.py"),
        (3, "tests/test_c.py"),
        (3, "tests/test_d.py"),
    ]
    assert FAR == 3


def test_of_equally_near_tests_the_one_that_imports_less_is_first() -> None:
    graph = {
        "kraftsim/a.py": ["tests/test_all.py", "tests/test_only_a.py"],
        "kraftsim/z.py": ["tests/test_all.py"],
    }
    assert [file for _, file in near_tests(["kraftsim/a.py"], graph)] == [
        "tests/test_only_a.py",
        "tests/test_all.py",
    ]


@pytest.mark.parametrize("seconds_left, is_run", [(-1.0, False), (600.0, True)])
def test_no_test_begins_after_the_deadline(
    tmp_path: Path, seconds_left: float, is_run: bool
) -> None:
    file = tmp_path / "test_it.py"
    file.write_text("def test_it(tmp_path):\n    assert False\n")
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tools.check")
    deadline = {DEADLINE: str(time.monotonic() + seconds_left)}
    done = subprocess.run(
        (*command, str(file)),
        cwd=ROOT,
        env={**os.environ, **deadline},
        capture_output=True,
        check=False,
    )
    assert done.returncode == int(is_run), done.stdout


def test_a_test_file_that_changed_is_the_nearest() -> None:
    assert near_tests(["tests/test_d.py", "kraftsim/a.py", "docs/a.md"], GRAPH)[:2] == [
        (0, "tests/test_d.py"),
        (1, "tests/test_a.py"),
    ]


def test_the_graph_knows_this_file() -> None:
    """The graph comes from ruff; imports of the code base are in it, those within functions,
    too.
    """
    here = str(Path(__file__).relative_to(ROOT))
    assert here in import_graph()["tools/check.py"]
