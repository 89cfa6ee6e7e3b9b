"""Generates mutants of selected functions by rules: off-by-one bounds, negated checks, omitted
steps, swapped neighbours.

Every possible change to the functions listed here is generated, one change at a time. Of the
rules of rooms (`rooms.py`), where that would be thousands, some are drawn.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Final

from tools.mutants.equivalents import EQUIVALENT
from tools.mutants.mutant import Mutant
from tools.mutants.patching import occurrences
from tools.mutants.rooms import ROOMS, Room, RoomFunction, functions_of, order_of, shares

COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
OTHER_ERROR: Final = "UNKNOWN_SERVER_ERROR"
BREAKS: Final = {
    "bound": "a bound is off by one",
    "negated": "a check is negated",
    "either": "one of two conditions is enough",
    "both": "both of two conditions are needed",
    "other-end": "the maximum replaces the minimum, or the reverse",
    "one-off": "a number is off by one",
    "left-out": "a step is omitted",
    "swapped": "two steps are swapped",
    "no-guard": "a guard is omitted",
    "branches": "two branches are swapped",
    "constant": "a constant is replaced",
    "error": "another error is returned",
    "fewer": "an element of a result is omitted",
}


@dataclass(frozen=True, slots=True)
class Field:
    """Functions of one module to mutate."""

    core: str
    module: str
    functions: tuple[str, ...]


FIELDS: Final = (
    Field("raft", "kraftsim.raft.rules_elections", ("poll_candidate",)),
    Field(
        "raft",
        "kraftsim.raft.rules_roles",
        ("Leadership.high_watermark", "Leadership._covers_own_epoch"),
    ),
    Field("raft", "kraftsim.raft.rules_log", ("RaftLog.truncate_to", "RaftLog.delete_before")),
    Field(
        "raft", "kraftsim.raft.rules_following", ("_append", "_truncate", "_learn_high_watermark")
    ),
    Field(
        "producer ids",
        "kraftsim.producer_ids.rules_block_clients",
        ("PrefetchingBlockClient._use",),
    ),
    Field(
        "producer state",
        "kraftsim.producer_state.rules_manager",
        ("ProducerStateManager._check_sequence",),
    ),
    Field("raft stores", "kraftsim.partitions.log", ("PartitionLog.flush",)),
    Field("raft stores", "kraftsim.raft.metadata_store", ("SnapshotFiles._name",)),
)


@dataclass(frozen=True, slots=True)
class Change:
    """A range of a function's source, and its replacement."""

    rule: str
    start: int
    end: int
    new: str


def generated() -> Iterator[Mutant]:
    """Yield every generated mutant: all of the fields, and those drawn of the rooms."""
    for field in FIELDS:
        for function in field.functions:
            source = _source_of(field.module, function)
            for name, change in _named(field.module, function, _changes(source, _rules)):
                yield _mutant(field.core, field.module, function, name, change, source)
    for room in ROOMS:
        yield from _drawn(room)


def _drawn(room: Room) -> Iterator[Mutant]:
    """Yield the mutants of a room: the rules of the generator in turn, each with the next of its
    changes by hash, and one change for each function.
    """
    sources: dict[str, tuple[RoomFunction, Change]] = {}
    by_rule: dict[str, list[str]] = {}
    for function in functions_of(room):
        for name, change in _named(
            function.module, function.name, _changes(function.source, _all_rules)
        ):
            sources[name] = function, change
            by_rule.setdefault(change.rule, []).append(name)
    queues = [sorted(names, key=order_of, reverse=True) for _, names in sorted(by_rule.items())]
    used: set[tuple[str, str]] = set()  # for membership only, never iterated
    left = shares()[room.core]
    while left and any(queues):
        for queue in queues:
            while queue and left:
                name = queue.pop()
                function, change = sources[name]
                place = function.module, function.name
                mutant = _mutant(room.core, *place, name, change, function.source)
                if place not in used and occurrences(mutant.old, function.source) == 1:
                    used.add(place)
                    left -= 1
                    yield mutant
                    break


def _mutant(
    core: str, module: str, function: str, name: str, change: "Change", source: str
) -> Mutant:
    old, new = _with_context(source, change)
    return Mutant(
        name=name,
        core=core,
        module=module,
        function=function,
        old=old,
        new=new,
        breaks=BREAKS[change.rule],
        made=change.rule,
        equivalent=EQUIVALENT.get(name, ""),
    )


def _named(
    module: str, function: str, changes: Iterable["Change"]
) -> Iterator[tuple[str, "Change"]]:
    """Yield the changes of a function with their names, in order of their places."""
    counts: dict[str, int] = {}
    for change in sorted(changes, key=lambda each: (each.start, each.end, each.rule)):
        counts[change.rule] = counts.get(change.rule, 0) + 1
        yield (
            f"{module.rpartition('.')[2]}.{function}/{change.rule}-{counts[change.rule]}",
            change,
        )


@cache
def _source_of(module: str, function: str) -> str:
    found: object = import_module(module)
    for name in function.split("."):
        found = vars(found)[name]
    # arg-type: found by name: a function, a class or a property
    return inspect.getsource(found.fget if isinstance(found, property) else found)  # type: ignore[arg-type]


Replacements = Iterator[tuple[str, ast.expr | ast.stmt, ast.expr | ast.stmt, str]]
"""(rule, first node, last node, replacement)."""


def _changes(source: str, rules: Callable[[ast.AST, str], Replacements]) -> Iterator[Change]:
    """Yield all possible changes; positions are in `source`, which may be indented."""
    indent = len(source) - len(source.lstrip())
    text = textwrap.dedent(source)
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line) + (indent if line.strip() else 0))

    def place(line: int, column: int) -> int:
        return starts[line - 1] + indent + column

    for node in _walked(ast.parse(text)):
        for rule, first, last, new in rules(node, text):
            begin = place(first.lineno, first.col_offset)
            yield Change(
                rule,
                begin,
                place(last.end_lineno or 0, last.end_col_offset or 0),
                textwrap.indent(new, " " * indent).lstrip(),
            )


def _rules(node: ast.AST, text: str) -> Replacements:
    """Yield the changes of one node."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if (
            type(operator) in COMPARISONS
        ):
            rule = "bound" if not isinstance(operator, ast.Eq | ast.NotEq) else "negated"
            yield (
                rule,
                node,
                node,
                f"{_text(left, text)} {COMPARISONS[type(operator)][1]} {_in_brackets(right, text)}",
            )
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            parts = (_in_brackets(value, text) for value in values)
            yield ("either" if word == " or " else "both"), node, node, f"({word.join(parts)})"
        case ast.Call(func=ast.Name(id="min" | "max" as name) as function):
            yield "other-end", function, function, "max" if name == "min" else "min"
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=ast.Constant(value=1)):
            yield "one-off", node, node, _text(left, text)
        case _:
            pass
    if isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Compare | ast.BoolOp):
        yield "negated", node.test, node.test, f"not ({_text(node.test, text)})"
    for block in _blocks(node):
        steps = [step for step in block if _is_step(step)]
        for step in steps:
            yield "left-out", step, step, "pass"
        for one, other in pairwise(block):
            if (
                isinstance(one, ast.Expr)
                and isinstance(other, ast.Expr)
                and _is_step(one)
                and _is_step(other)
            ):
                margin = " " * one.col_offset
                yield "swapped", one, other, f"{_text(other, text)}\n{margin}{_text(one, text)}"


def _all_rules(node: ast.AST, text: str) -> Replacements:
    """Yield the changes of one node, for rooms."""
    yield from _rules(node, text)
    match node:
        case ast.If(test=test, body=[ast.Return() | ast.Raise() | ast.Continue()], orelse=[]):
            yield "no-guard", test, test, "False"
        case ast.If(test=ast.Compare() as test, orelse=[_, *_]):
            yield "branches", test, test, f"not ({_text(test, text)})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            parts = (orelse, test, body)
            new = "({} if {} else {})".format(*(f"({_text(each, text)})" for each in parts))
            yield "branches", node, node, new
        case ast.Constant(value=bool() as value):
            yield "constant", node, node, str(not value)
        case ast.Constant(value=int() as value) if value != 1:  # "one-off" changes most of these
            yield "constant", node, node, str(value + 1)
        case ast.Attribute(value=ast.Name(id="ErrorCode"), attr=name) if name not in (
            "NONE",
            OTHER_ERROR,
        ):
            yield "error", node, node, f"ErrorCode.{OTHER_ERROR}"
        case ast.Return(value=ast.List(elts=[_, _, *_] as elements)):
            yield "fewer", elements[0], elements[1], _text(elements[1], text)
        case _:
            pass


def _walked(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all nodes below it except assertions, which check the rules, signatures,
    which are read once, and what only types or reports say.
    """
    yield node
    for below in ast.iter_child_nodes(node):
        if not isinstance(below, ast.Assert | ast.arguments | ast.JoinedStr):
            yield from _walked(below)


def _in_brackets(value: ast.expr, text: str) -> str:
    return f"({_text(value, text)})" if isinstance(value, ast.BoolOp) else _text(value, text)


def _blocks(node: ast.AST) -> Iterable[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block


def _is_step(statement: ast.stmt) -> bool:
    """Return whether a statement can be omitted: a call, or an assignment to a value that outlives
    the function; not an emitted event.
    """
    if isinstance(statement, ast.Expr):
        called = (
            statement.value.value if isinstance(statement.value, ast.Await) else statement.value
        )
        return isinstance(called, ast.Call) and not ast.unparse(called.func).endswith("emit")
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Attribute) for target in statement.targets)
    return False


def _text(node: ast.AST, text: str) -> str:
    found = ast.get_source_segment(text, node)
    assert found is not None, "every node has a place"
    return found


def _with_context(source: str, change: Change) -> tuple[str, str]:
    """Return the replaced text and its replacement, with enough context to make the position
    unique.
    """
    start, end = change.start, change.end
    while source.count(source[start:end]) != 1:
        start = source.rfind("\n", 0, max(start - 1, 0)) + 1
        end = source.find("\n", end + 1) if source.find("\n", end + 1) >= 0 else len(source)
    return source[start:end], source[start : change.start] + change.new + source[change.end : end]
