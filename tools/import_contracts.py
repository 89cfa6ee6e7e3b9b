"""The contract type `room` of import-linter: a package imports only what its contract in
pyproject.toml allows.

An allow list stays complete where a deny list does not: a new package, library or standard module
is forbidden until a contract allows it. Only direct imports are checked; since every package has a
contract, indirect imports are checked by the contracts of the packages in between.
"""

import ast
import importlib.util
import re
import sys
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

CORE = "kraftsim.core"
EVENTS = re.compile(r"kraftsim\.(events|\w+\.events\w*)")
INVARIANTS = re.compile(r"kraftsim\.(\w+\.)?invariants")
RULES = re.compile(r"(kraftsim\.\w+)\.rules\w*")


def _packages(names: Iterable[str], graph: ImportGraph) -> list[str]:
    """Replace the words that stand for several packages."""
    concerns = {CORE} | {found[1] for name in graph.modules if (found := RULES.fullmatch(name))}
    words = {
        "concerns": concerns,
        "events": {name for name in graph.modules if EVENTS.fullmatch(name)},
        "invariants": {name for name in graph.modules if INVARIANTS.fullmatch(name)},
    }
    return [package for name in names for package in sorted(words.get(name, {name}))]


class PackageContract(Contract):
    """`room` may import itself, the packages in `may_import` with their subpackages (a root package
    alone means its `__init__`), and the standard library except for `without_stdlib`.

    The word `concerns` stands for all folders of one concern: packages that have a rules module,
    and kraftsim.core. As a room they are checked together, without the modules that match `apart`.
    The words `events` and `invariants` stand for the modules of all concerns that define these.
    """

    type_name = "room"

    room = fields.StringField()
    apart = fields.StringField(required=False, default="")
    may_import: Any = fields.ListField(subfield=fields.StringField())
    without_stdlib: Any = fields.ListField(
        subfield=fields.StringField(), required=False, default=[]
    )

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every import that the contract does not allow."""
        rooms = _packages([str(self.room)], graph)
        missing = [room for room in rooms if room not in graph.modules]
        if missing:
            warnings = [f"the package {room} does not exist" for room in missing]
            return ContractCheck(kept=True, warnings=warnings, metadata={"broken": []})
        allowed = _packages(self.may_import, graph)
        broken = [
            f"{importer} -> {imported} (line {_lines(graph, importer, imported)})"
            for room in rooms
            for importer in sorted({room, *graph.find_descendants(room)})
            if not re.fullmatch(str(self.apart), importer)
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if not self._is_open(imported, rooms, allowed)
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each forbidden import."""
        for line in check.metadata["broken"]:
            output.print_error(f"- {line}", bold=False)
        output.print(
            f"Imports are allowed in pyproject.toml, in the contract of {self.room}; "
            "docs/architecture.md gives the reasons for them."
        )

    def _is_open(self, imported: str, rooms: Sequence[str], allowed: Sequence[str]) -> bool:
        if any(_is_within(imported, room) for room in rooms):
            return True
        if any(
            _is_within(imported, package) and (package != "kraftsim" or imported == package)
            for package in allowed
        ):
            return True
        return (
            imported.partition(".")[0] in sys.stdlib_module_names
            and imported.partition(".")[0] not in self.without_stdlib
        )


class RulesContract(Contract):
    """Modules that match `modules` (a regular expression) are pure: they import each other,
    `may_import`, and the standard library but for `without_stdlib`; imports for type checkers and
    within functions count, and `import_module` is not called.

    The graph of import-linter leaves out imports for type checkers, so the sources are read.
    """

    type_name = "rules"

    modules = fields.StringField()
    may_import: Any = fields.ListField(subfield=fields.StringField())
    without_stdlib: Any = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every import of a rules module that is not pure."""
        pattern = re.compile(str(self.modules))
        found = sorted(module for module in graph.modules if pattern.fullmatch(module))
        broken = [f"no module matches {self.modules}"] if not found else []
        allowed = _packages(self.may_import, graph)
        for module in found:
            spec = importlib.util.find_spec(module)
            assert spec is not None and spec.origin is not None, (
                f"{module} is a module of the graph"
            )
            for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
                broken += [
                    f"{module} -> {imported} (line {getattr(node, 'lineno', 0)})"
                    for imported in _imported(node, graph.modules)
                    if not self._is_allowed(imported, pattern, allowed)
                ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each import that should not be."""
        for line in check.metadata["broken"]:
            output.print_error(f"- {line}", bold=False)
        output.print(
            "Rules are pure functions and states. Put what needs a clock, a disk, a socket or a "
            "task into the shell beside them."
        )

    def _is_allowed(self, imported: str, pattern: re.Pattern[str], allowed: Sequence[str]) -> bool:
        if pattern.fullmatch(imported) or any(_is_within(imported, each) for each in allowed):
            return True
        first = imported.partition(".")[0]
        return first in sys.stdlib_module_names and first not in self.without_stdlib


def _imported(node: ast.AST, modules: Container[str]) -> list[str]:
    """Return the modules that a node of a syntax tree imports: of a package that is imported from,
    each name that is a module of it.
    """
    match node:
        case ast.Import(names=names):
            return [each.name for each in names]
        case ast.ImportFrom(module=str(module), names=names):
            within = [f"{module}.{each.name}" for each in names]
            if all(each in modules for each in within):
                return within
            return [module]
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module")
        ):
            return ["importlib.import_module(...)"]
    return []


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _lines(graph: ImportGraph, importer: str, imported: str) -> str:
    details = graph.get_import_details(importer=importer, imported=imported)
    return ", ".join(str(detail["line_number"]) for detail in details)
