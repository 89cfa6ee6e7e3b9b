"""Which code of the rules the runs of a campaign execute.

Rules (`rules*.py`) decide everything that a node does, so a line or a way out of a condition that
no run takes is a case that the campaign has not tested. The process that runs a seed records the
jumps from line to line; coverage.py finds what none of all runs took. Code outside of functions
runs when a module is imported, and is not counted.

coverage.py does not record here: it looks at files while it does, which a simulation refuses.
"""

import ast
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import msgspec

from kraftsim.analysis.campaign_tables import CodeRow, UnexecutedRow

PACKAGE: Final = Path(__file__).parents[2]
LABORATORY: Final = PACKAGE / "lab"
LINE, BRANCH = "line", "branch"

TraceFunction = Callable[[FrameType, str, object], Any]
"""As the interpreter calls it: it returns the trace function of the frame, or None."""

Jumps = dict[str, list[tuple[int, int]]]
"""By file, relative to the directory of the package: (from line, to line); negative at the start
and the end of a function.
"""


class RunOfCode(NamedTuple):
    """The jumps of one run: its name in the dataset, its scenario."""

    run: str
    scenario: str
    jumps: Jumps


class RuleFunction(NamedTuple):
    """A function of the rules: the number of its `def` line, and those of its own lines, without
    the functions inside it.
    """

    name: str
    line: int
    lines: frozenset[int]


@contextmanager
def recorded(file: Path) -> Iterator[None]:
    """Record the jumps in rules while the block runs, and write them to a file."""
    tracer = _Tracer()
    former = sys.gettrace()
    sys.settrace(tracer.begin)
    try:
        yield
    finally:
        sys.settrace(former)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_bytes(msgspec.json.encode(tracer.jumps()))
    unfinished.replace(file)


class _Tracer:
    """A trace function of the interpreter: it gets the lines of rules, and no others."""

    def __init__(self) -> None:
        self._files = {str(path): _relative(str(path)) for path in rule_files()}
        self._jumps: dict[CodeType, set[tuple[int, int]] | None] = {}
        """None for code that is not of rules."""

    def begin(self, frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        """Return the trace function of a call."""
        code = frame.f_code
        try:
            jumps = self._jumps[code]
        except KeyError:
            jumps = self._jumps[code] = set() if code.co_filename in self._files else None
        if jumps is None:
            return None
        last, is_raising = -code.co_firstlineno, False

        def follow(frame: FrameType, event: str, argument: object) -> TraceFunction:
            nonlocal last, is_raising
            if event == "line":
                jumps.add((last, frame.f_lineno))
                last, is_raising = frame.f_lineno, False
            elif event == "exception":
                is_raising = True
            elif event == "return" and not is_raising:
                jumps.add((last, -code.co_firstlineno))
            return follow

        return follow

    def jumps(self) -> Jumps:
        """Return what was recorded, by file."""
        found: dict[str, set[tuple[int, int]]] = {}
        for code, jumps in self._jumps.items():
            if jumps:
                found.setdefault(self._files[code.co_filename], set()).update(jumps)
        return {file: sorted(jumps) for file, jumps in sorted(found.items())}


def jumps_in(file: Path) -> Jumps:
    """Return what `recorded` wrote; nothing if the run did not end."""
    return msgspec.json.decode(file.read_bytes(), type=Jumps) if file.exists() else {}


def code_rows(runs: Iterable[RunOfCode], commit: str) -> tuple[list[CodeRow], list[UnexecutedRow]]:
    """Return a row for each function that a run executes, and one for each line and each condition
    of the rules that the runs together do not execute or decide one way only.

    Raises ModuleNotFoundError without coverage.py.
    """
    known = list(runs)
    together: dict[str, set[tuple[int, int]]] = {}
    for run in known:
        for file, jumps in run.jumps.items():
            together.setdefault(file, set()).update(jumps)
    files = _analysed(together)
    rows = []
    for run in known:
        for file, jumps in run.jumps.items():
            executed = {line for jump in jumps for line in jump}
            for function in functions_of(PACKAGE.parent / file):
                own = files[file].statements & function.lines
                count = len(own & executed)
                if count:
                    rows.append(
                        CodeRow(
                            commit=commit,
                            run=run.run,
                            scenario=run.scenario,
                            file=file,
                            function=function.name,
                            line=function.line,
                            statements=len(own),
                            executed=count,
                        )
                    )
    return rows, [
        row for file, analysed in files.items() for row in _unexecuted(file, analysed, commit)
    ]


def rule_files() -> list[Path]:
    """Return the files with rules of the product, sorted; those of the laboratory are not
    among them.
    """
    return sorted(path for path in PACKAGE.rglob("rules*.py") if LABORATORY not in path.parents)


@cache
def functions_of(path: Path) -> Sequence[RuleFunction]:
    """Return the functions of a file, methods with the name of their class, in order."""
    found: list[RuleFunction] = []
    _collect(ast.parse(path.read_bytes()), "", found)
    return tuple(sorted(found, key=lambda function: function.line))


def _collect(node: ast.AST, prefix: str, found: list[RuleFunction]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            _collect(child, f"{prefix}{child.name}.", found)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner: list[RuleFunction] = []
            _collect(child, f"{prefix}{child.name}.", inner)
            end = child.end_lineno or child.lineno
            lines = frozenset(range(child.body[0].lineno, end + 1))
            found.append(
                RuleFunction(
                    f"{prefix}{child.name}",
                    child.lineno,
                    lines.difference(*(function.lines for function in inner)),
                )
            )
            found += inner
        else:
            _collect(child, prefix, found)


class _Analysed(NamedTuple):
    """The lines of a file that can be executed, those that were not, and those with a condition
    that was decided one way only.
    """

    statements: frozenset[int]
    missing: frozenset[int]
    partial: frozenset[int]


class _FileReport(msgspec.Struct):
    executed_lines: list[int]
    missing_lines: list[int]
    missing_branches: list[tuple[int, int]]


class _Report(msgspec.Struct):
    files: dict[str, _FileReport]


def _analysed(jumps: Mapping[str, set[tuple[int, int]]]) -> dict[str, _Analysed]:
    """Return what coverage.py finds in the files with rules, by file."""
    from coverage import Coverage

    paths = [str(path) for path in rule_files()]
    measuring = Coverage(data_file=None, branch=True, config_file=False, include=paths)
    data = measuring.get_data()
    data.add_arcs({path: jumps.get(_relative(path), set()) for path in paths})
    data.touch_files(paths)  # also those without a jump
    with tempfile.TemporaryDirectory(prefix="kraftsim-code-") as scratch:
        written = Path(scratch) / "report.json"
        measuring.json_report(outfile=str(written))
        report = msgspec.json.decode(written.read_bytes(), type=_Report)
    found = {_relative(str(Path(name).absolute())): each for name, each in report.files.items()}
    return {
        file: _Analysed(
            statements=frozenset(each.executed_lines) | frozenset(each.missing_lines),
            missing=frozenset(each.missing_lines),
            partial=frozenset(line for line, _ in each.missing_branches)
            - frozenset(each.missing_lines),
        )
        for file, each in sorted(found.items())
    }


def _unexecuted(file: str, analysed: _Analysed, commit: str) -> Iterator[UnexecutedRow]:
    path = PACKAGE.parent / file
    text = path.read_text(encoding="utf-8").splitlines()
    for function in functions_of(path):
        for line in sorted((analysed.missing | analysed.partial) & function.lines):
            yield UnexecutedRow(
                commit=commit,
                file=file,
                function=function.name,
                line=line,
                kind=LINE if line in analysed.missing else BRANCH,
                text=text[line - 1].strip(),
            )


def _relative(file: str) -> str:
    return Path(file).relative_to(PACKAGE.parent).as_posix()
