"""Applies a mutant to the running process and reverts it.

No file is changed, and no module is imported twice.

The module is compiled again with the replaced text, and the existing function object gets the new
code object: its identity is unchanged, so that modules that imported it are mutated as well.
"""

import ast
import importlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from types import CodeType, FunctionType, ModuleType

from tools.mutants.mutant import Mutant

TOKEN = re.compile(r"\w+|\S")
WORD = re.compile(r"\w")
CLOSING = frozenset(")]}")


class PatchMissed(ValueError):
    """The text that a mutant replaces does not occur, or occurs more than once."""


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Run the block with the mutant in place. Raises PatchMissed."""
    function = function_of(mutant)
    right = function.__code__
    function.__code__ = mutated_code(mutant)
    try:
        yield
    finally:
        function.__code__ = right


def function_of(mutant: Mutant) -> FunctionType:
    """Return the function object that the program uses. Raises PatchMissed."""
    found: object = _module_of(mutant)
    for name in mutant.function.split("."):
        names = vars(found) if isinstance(found, type | ModuleType) else {}
        if name not in names:
            raise PatchMissed(f"{mutant.name}: {mutant.module} has no {mutant.function}")
        found = names[name]
    function = _unwrapped(found)
    if not isinstance(function, FunctionType):
        raise PatchMissed(f"{mutant.name}: {mutant.function} is no function")
    return function


def source_of(mutant: Mutant) -> str:
    """Return the source of the function before the change, without its layout and docstring.

    Raises PatchMissed.
    """
    _, node = parsed(mutant)
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return "\n".join(map(ast.unparse, body))


def mutated_code(mutant: Mutant) -> CodeType:
    """Return the code of the function with the replaced text.

    Raises PatchMissed; SyntaxError if the result is invalid Python.
    """
    source, node = parsed(mutant)
    lines = source.splitlines(keepends=True)
    before, own, behind = (
        "".join(part)
        for part in (
            lines[: node.lineno - 1],
            lines[node.lineno - 1 : node.end_lineno],
            lines[node.end_lineno :],
        )
    )
    found = list(_pattern(mutant.old).finditer(own))
    if len(found) != 1 or mutant.old == mutant.new:
        raise PatchMissed(
            f"{mutant.name}: {mutant.old!r} occurs {len(found)} times in {mutant.place}, expected "
            "once"
        )
    start, end = found[0].span()
    function = function_of(mutant)
    module = compile(
        before + own[:start] + mutant.new.strip() + own[end:] + behind,
        function.__code__.co_filename,
        "exec",
        dont_inherit=True,
    )
    code = code_named(module, mutant.function)
    if (
        code is None
        or code.co_freevars != function.__code__.co_freevars
        or inspect.signature(function) != _signature_with(function, code)
    ):
        raise PatchMissed(
            f"{mutant.name}: {mutant.function} has another signature or other outer variables "
            "after the change"
        )
    return code


def occurrences(old: str, source: str) -> int:
    """Return how often a text to replace occurs in a source, whatever its layout."""
    return len(_pattern(old).findall(source))


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """An expression for code in any layout: the formatter may break a line after any token, and
    ends the last of several lines in brackets with a comma.
    """
    tokens = TOKEN.findall(text)
    parts = [re.escape(tokens[0])]
    for before, token in itertools.pairwise(tokens):
        between = r"\s+" if WORD.match(before[-1]) and WORD.match(token[0]) else r"\s*"
        parts.append((r",?\s*" if token in CLOSING else between) + re.escape(token))
    start, end = (r"\b" if WORD.match(each) else "" for each in (tokens[0][0], tokens[-1][-1]))
    return re.compile(start + "".join(parts) + end)


def _module_of(mutant: Mutant) -> ModuleType:
    try:
        return importlib.import_module(mutant.module)
    except ModuleNotFoundError as gone:
        raise PatchMissed(f"{mutant.name}: there is no {mutant.module}") from gone


@cache
def _tree(module: ModuleType) -> tuple[str, ast.Module]:
    source = inspect.getsource(module)
    return source, ast.parse(source)


def parsed(mutant: Mutant) -> tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the source of the module that a mutant changes, and the function in it.

    Raises PatchMissed.
    """
    source, tree = _tree(_module_of(mutant))
    body: list[ast.stmt] = tree.body
    node: ast.stmt | None = None
    for name in mutant.function.split("."):
        node = next(
            (
                each
                for each in body
                if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and each.name == name
            ),
            None,
        )
        if node is None:
            raise PatchMissed(f"{mutant.name}: {mutant.module} has no {mutant.function}")
        body = node.body
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        raise PatchMissed(f"{mutant.name}: {mutant.function} is no function")
    return source, node


def _unwrapped(found: object) -> object:
    match found:
        case property():
            return found.fget
        case staticmethod() | classmethod():
            return found.__func__
        case cached_property():
            return found.func
        case _:
            # arg-type: `Callable` is no class for mypy
            return inspect.unwrap(found) if isinstance(found, Callable) else found  # type: ignore[arg-type]


def code_named(code: CodeType, qualified_name: str) -> CodeType | None:
    """Return the code of a function inside the code of its module; None if it is not there."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == qualified_name:
                return constant
            if (found := code_named(constant, qualified_name)) is not None:
                return found
    return None


def _signature_with(function: FunctionType, code: CodeType) -> inspect.Signature:
    other = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    other.__kwdefaults__ = function.__kwdefaults__
    other.__annotations__ = function.__annotations__
    return inspect.signature(other)
