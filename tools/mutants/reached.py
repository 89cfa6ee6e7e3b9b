"""Notes which functions a run calls: a run that does not call a mutated function is the same with
the mutant and without it, byte for byte, and need not be repeated.

A function gets other code that begins by noting its number. What a function under `functools.cache`
computed in an earlier run of the process is not called again, and so not noted.
"""

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType

from tools.mutants.mutant import Mutant
from tools.mutants.patching import code_named, function_of, parsed

NOTES = "__functions_reached__"


@contextmanager
def noting(mutants: Sequence[Mutant]) -> Iterator[set[str]]:
    """Run the block with every function that one of the mutants changes noting its place in the
    yielded set, which the caller clears between runs.
    """
    reached: set[str] = set()  # for membership only, never iterated
    former: list[tuple[FunctionType, CodeType]] = []
    try:
        for place, mutant in {each.place: each for each in mutants}.items():
            function = function_of(mutant)
            former.append((function, function.__code__))
            function.__code__ = _noting_code(mutant, place)
            function.__globals__[NOTES] = reached
        yield reached
    finally:
        for function, code in reversed(former):
            function.__code__ = code


def _noting_code(mutant: Mutant, place: str) -> CodeType:
    """Return the code of the function that a mutant changes, unchanged but for the note."""
    source, node = parsed(mutant)
    first = node.body[int(ast.get_docstring(node) is not None)]
    lines = source.splitlines(keepends=True)
    lines.insert(first.lineno - 1, f"{' ' * first.col_offset}{NOTES}.add({place!r})\n")
    file_name = function_of(mutant).__code__.co_filename
    module = compile("".join(lines), file_name, "exec", dont_inherit=True)
    code = code_named(module, mutant.function)
    assert code is not None, "the function is where it was"
    return code
