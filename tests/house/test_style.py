"""The style rules of the codebase: small files, short functions, nouns for names, nothing
machine-specific.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROJECT_ROOT = Path(__file__).parents[2]
ROOMS = (
    "protocol",
    "kraftsim",
    "scenarios",
    "pyspark_kafka_log",
    "demo",
    "tests",
    "docs",
    "tools",
    "examples",
)
FILE_LINES_MAX = {"tests": 1000}
FUNCTION_LINES_MAX = {"tests": 110, "tools": 100}
"""By top-level folder: a test's tables of cases are long and read from top to bottom."""
OTHER_FILES_MAX, OTHER_FUNCTIONS_MAX = 800, 90
NO_NOUNS = {"utils", "util", "helpers", "helper", "common", "misc", "base"}
CALLED_BY_LIBRARIES = {
    "_decode",
    "_encode",
    "_emitbuild",
    "_emitparse",
    "_sizeof",
    "_timer_handle_cancelled",
    "_write_to_self",
}
"""Overrides of methods of construct and asyncio."""
DECLARATION_LANGUAGE = {"protocol/schema.py", "protocol/codec/message_class.py"}
"""Files that declare fields of any type, and generate classes from the declarations."""
MACHINE_SPECIFIC = re.compile(
    "/"
    + r"(work|root|home)/|/tmp/k/|pypi"
    + r"\.org|python"
    + r"hosted|repo\d?\.maven|npm"
    + r"js\.|crates"
    + r"\.io|golang\.org/"
)


@dataclass(frozen=True, slots=True)
class Function:
    """What the rules check of a function; its body is not kept."""

    name: str
    line: int
    lines: int
    mentions_any: bool


@dataclass(frozen=True, slots=True)
class Outline:
    """What the rules check of a module."""

    has_docstring: bool
    relative_imports: tuple[int, ...]
    functions: tuple[Function, ...]


@cache
def outline_of(file: Path) -> Outline:
    """Parse a file once for all rules: parsing takes longer than all checks."""
    tree = ast.parse(file.read_text())
    nodes = list(ast.walk(tree))
    return Outline(
        bool(ast.get_docstring(tree)),
        tuple(node.lineno for node in nodes if isinstance(node, ast.ImportFrom) and node.level),
        tuple(
            Function(node.name, node.lineno, _lines_of(node), any(map(_mentions_any, _hints(node))))
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
    )


def python_files() -> Iterator[Path]:
    """Every Python file of the repository, sorted."""
    for room in ROOMS:
        yield from sorted((PROJECT_ROOT / room).rglob("*.py"))


def text_files() -> Iterator[Path]:
    """Every text file of the repository, sorted.

    A linked worktree has a file named .git, written by git.
    """
    yield from python_files()
    for place in (PROJECT_ROOT, PROJECT_ROOT / ".ci", *(PROJECT_ROOT / room for room in ROOMS)):
        found = (
            place.iterdir() if place in (PROJECT_ROOT, PROJECT_ROOT / ".ci") else place.rglob("*")
        )
        yield from sorted(
            file
            for file in found
            if file.is_file()
            and file.name != ".git"
            and (file.suffix in {".md", ".toml", ".yml", ".lock", ".txt", ".html", ""})
        )


def name_of(file: Path) -> str:
    """Name of a file for failure messages."""
    return file.relative_to(PROJECT_ROOT).as_posix()


def room_of(file: Path) -> str:
    """Top-level folder of a file."""
    return file.relative_to(PROJECT_ROOT).parts[0]


def test_files_stay_below_the_line_limit() -> None:
    too_long = {
        name_of(file): lines
        for file in python_files()
        if (lines := len(file.read_text().splitlines()))
        > FILE_LINES_MAX.get(room_of(file), OTHER_FILES_MAX)
    }
    assert not too_long, "look for a seam at 400 lines"


def test_functions_stay_below_the_line_limit() -> None:
    too_long = [
        f"{name_of(file)}:{function.line} {function.name} has {function.lines} lines"
        for file in python_files()
        for function in outline_of(file).functions
        if function.lines > FUNCTION_LINES_MAX.get(room_of(file), OTHER_FUNCTIONS_MAX)
    ]
    assert not too_long


def test_file_names_are_specific_nouns() -> None:
    assert not [name_of(file) for file in python_files() if file.stem in NO_NOUNS]


def test_no_folder_repeats_the_name_of_a_root_package() -> None:
    """`protocol` and `scenarios` are generic names; a second folder of that name with modules would
    shadow them.
    """
    places = [
        place
        for room in ROOMS
        for place in (PROJECT_ROOT / room).rglob("*")
        if place.is_dir() and place.name in ("protocol", "scenarios")
    ]
    repeated = [name_of(place) for place in places if any(place.rglob("*.py"))]
    assert not repeated


def test_imports_are_absolute() -> None:
    relative = [
        f"{name_of(file)}:{line}"
        for file in python_files()
        for line in outline_of(file).relative_imports
    ]
    assert not relative


def test_every_module_has_a_docstring() -> None:
    silent = [name_of(file) for file in python_files() if not outline_of(file).has_docstring]
    assert not silent, "a module starts with one sentence: its purpose, and its source in Kafka"


def test_signatures_do_not_use_any() -> None:
    """`Any` is used only in the declaration language, and in tests."""
    vague = [
        f"{name_of(file)}:{function.line} {function.name}"
        for file in python_files()
        if room_of(file) in ("protocol", "kraftsim") and name_of(file) not in DECLARATION_LANGUAGE
        for function in outline_of(file).functions
        if function.mentions_any
    ]
    assert not vague


def test_nothing_names_a_machine_or_a_registry() -> None:
    named = [
        f"{name_of(file)}:{number} {line.strip()[:80]}"
        for file in text_files()
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if MACHINE_SPECIFIC.search(line) and file != Path(__file__)
    ]
    assert not named


def test_every_private_function_is_used() -> None:
    """In its file; or in one that this file imports, where the class is that a method overrides; or
    in one that imports this file, where a subclass is. When the overridden one is renamed, the
    other is left without a caller, and says nothing.
    """
    used: dict[str, set[str]] = {}
    defined: dict[str, set[str]] = {}
    imported: dict[str, set[str]] = {}
    for file in python_files():
        if room_of(file) in ("kraftsim", "protocol", "scenarios"):
            text, name = file.read_text(), name_of(file)
            module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            defined[module] = set(re.findall(r"def (_[a-z]\w*)\(", text))
            used[module] = set(re.findall(r"(?<!def )\b(_[a-z]\w*)", text))
            imported[module] = set(re.findall(r"^ *from ([\w.]+) import", text, re.MULTILINE))
    unused = {
        f"{module}.{name}"
        for module, names in defined.items()
        for name in names - used[module] - CALLED_BY_LIBRARIES
        if not any(name in used.get(each, ()) for each in imported[module])
        and not any(name in used[each] for each in used if module in imported[each])
    }
    assert sum(map(len, defined.values())) > 3000
    assert not unused


def test_no_test_counts_the_threads_of_the_process() -> None:
    """A thread of an earlier test may end meanwhile: compare sets of threads instead."""
    counted = [
        name_of(file)
        for file in python_files()
        if room_of(file) == "tests"
        and file != Path(__file__)
        and "active_count(" in file.read_text()
    ]
    assert not counted, "use threading.enumerate(), and look for threads that are new"


def test_sources_cite_only_public_references() -> None:
    """Sources are KIPs, tickets or classes of Apache Kafka, and no private documents."""
    private = re.compile(
        r"\bfacts/|(?<![\w-])((broker|controller|releases|simulation|codec|peers|analysis)\.md\b)"
    )
    cited = [
        f"{name_of(file)}:{number} {line.strip()[:80]}"
        for file in text_files()
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if private.search(line) and file != Path(__file__)
    ]
    assert not cited


def _lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def _hints(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    arguments = function.args
    for argument in (
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ):
        if argument is not None and argument.annotation is not None:
            yield argument.annotation
    if function.returns is not None:
        yield function.returns


def _mentions_any(hint: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(hint))
