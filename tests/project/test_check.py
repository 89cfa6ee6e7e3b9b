"""`make check`: which tests run for a change, and in which order."""

from pathlib import Path

from tools.check import FAR, ROOT, import_graph, near_tests

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
