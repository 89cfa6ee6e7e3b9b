"""`make more-seeds` reaches every random test: if a test loops over seeds, a test of the same file
has the seed as a parameter.

Only a range of seeds that is a parameter is extended (tests/conftest.py); a loop inside a test
always runs the same seeds.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]
FOLDERS: Final = ("core", "node", "tiered_storage", "wire")
SEED: Final = "seed"


def loops_over_seeds(tree: ast.Module) -> bool:
    """Return whether a module has a loop or a comprehension over a range of seeds."""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.comprehension)]
    return any(
        isinstance(loop.target, ast.Name) and loop.target.id == SEED and _is_range(loop.iter, tree)
        for loop in loops
    )


def takes_seeds(tree: ast.Module) -> bool:
    """Return whether a module has a test with a range of seeds as a parameter."""
    return any(
        _is_over_seeds(mark, tree)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for mark in node.decorator_list
    )


def _is_over_seeds(mark: ast.expr, tree: ast.Module) -> bool:
    if (
        not isinstance(mark, ast.Call)
        or not ast.unparse(mark.func).endswith("parametrize")
        or len(mark.args) < 2
    ):
        return False
    name = mark.args[0]
    return isinstance(name, ast.Constant) and name.value == SEED and _is_range(mark.args[1], tree)


def _is_range(value: ast.expr, tree: ast.Module) -> bool:
    if isinstance(value, ast.Name):
        return any(_is_range(each, tree) for each in _values_of(value.id, tree))
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id == "range"
    )


def _values_of(name: str, tree: ast.Module) -> Iterator[ast.expr]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == name for each in node.targets
        ):
            yield node.value


FOUND: Final = {
    str(path.relative_to(TESTS)): tree
    for folder in FOLDERS
    for path in sorted((TESTS / folder).glob("test_*.py"))
    for tree in [ast.parse(path.read_text())]
    if loops_over_seeds(tree)
}


def test_the_search_finds_loops() -> None:
    assert "core/test_replication.py" in FOUND


@pytest.mark.parametrize("file", FOUND)
def test_tests_over_seeds_can_run_more_seeds(file: str) -> None:
    assert takes_seeds(FOUND[file])


@pytest.mark.parametrize(
    ("source", "loops", "takes"),
    [
        ("for seed in range(3): play(seed)", True, False),
        ("SEEDS = range(3)\nfor seed in SEEDS: play(seed)", True, False),
        ("found = [play(seed) for seed in range(3)]", True, False),
        ("for seed in (1, 7): play(seed)", False, False),
        ("@pytest.mark.parametrize('seed', range(3))\ndef test_it(seed): play(seed)", False, True),
        (
            (
                "SEEDS = range(3)\n@pytest.mark.parametrize('seed', SEEDS)\ndef test_it(seed): "
                "play(seed)"
            ),
            False,
            True,
        ),
        ("@pytest.mark.parametrize('seed', [1, 7])\ndef test_it(seed): play(seed)", False, False),
    ],
)
def test_detection_of_seed_loops_and_seed_parameters(source: str, loops: bool, takes: bool) -> None:
    tree = ast.parse(source)
    assert (loops_over_seeds(tree), takes_seeds(tree)) == (loops, takes)
