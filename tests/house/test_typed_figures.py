"""No figure of docs/claims.json is a literal: tests and measurements record computed values, or
parameters of the run.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT_ROOT = Path(__file__).parents[2]
TESTS = [
    file
    for file in sorted((PROJECT_ROOT / "tests").rglob("test_*.py"))
    if "figures" in file.read_text()
]
CHECKS = sorted((PROJECT_ROOT / "tools" / "claims").glob("plays_*.py"))


def is_literal(value: ast.expr) -> bool:
    """Whether a value needs no run: a constant, or signs, lists and conditionals of constants; a
    name counts as computed.
    """
    match value:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=operand):
            return is_literal(operand)
        case ast.BinOp(left=left, right=right):
            return is_literal(left) and is_literal(right)
        case ast.IfExp(body=body, orelse=orelse):
            return is_literal(body) and is_literal(orelse)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return any(map(is_literal, elements))
        case _:
            return False


def of_dicts(expression: ast.expr) -> Iterator[ast.expr]:
    """Each value of each dict literal in an expression."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Dict):
            yield from node.values
        elif isinstance(node, ast.DictComp):
            yield node.value


def recorded(tree: ast.Module) -> Iterator[ast.expr]:
    """The values passed to the fixture `figures`."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "figures"
        ):
            for keyword in node.keywords:
                yield from of_dicts(keyword.value) if keyword.arg is None else [keyword.value]


def returned(tree: ast.Module) -> Iterator[ast.expr]:
    """The values that measurement functions and their helpers put into dicts of figures."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    for node in (each for function in functions for each in ast.walk(function)):
        match node:
            case (
                ast.Return(value=ast.expr() as value)
                | ast.AugAssign(op=ast.BitOr(), value=value)
                | ast.AnnAssign(target=ast.Name(id="found"), value=ast.expr() as value)
            ):
                yield from of_dicts(value)


def typed(file: Path) -> list[str]:
    """Positions of literal figures."""
    tree = ast.parse(file.read_text())
    values = returned(tree) if file in CHECKS else recorded(tree)
    return [
        f"{file.relative_to(PROJECT_ROOT)}:{each.lineno}: {ast.unparse(each)}"
        for each in values
        if is_literal(each)
    ]


@pytest.mark.parametrize("file", [*TESTS, *CHECKS], ids=lambda file: file.stem)
def test_no_claim_figure_is_a_literal(file: Path) -> None:
    """Use the name of the parameter, or the returned value, instead."""
    assert not typed(file)


def test_literal_figures_are_found_in_every_position() -> None:
    source = (
        "figures(a=3, b=len(x), c=-1, d=[1, n], **{f'{k}': 0, 'e': x.y}, f=[x], g=2 * 3, h=1 if "
        "x else 0, i=2**n, j=x if y else 0)"
    )
    assert [ast.unparse(each) for each in recorded(ast.parse(source)) if is_literal(each)] == [
        "3",
        "-1",
        "[1, n]",
        "0",
        "2 * 3",
        "1 if x else 0",
    ]
    source_of_run = (
        "def play():\n    found |= {'a': 1}\n    return found | {'b': told.x, 'c': '2'} | {k: 0 "
        "for k in x}"
    )
    assert sorted(
        ast.unparse(each) for each in returned(ast.parse(source_of_run)) if is_literal(each)
    ) == ["'2'", "0", "1"]
