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
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class PackageContract(Contract):
    """`room` may import itself, the packages in `may_import` with their subpackages (a root package
    alone means its `__init__`), and the standard library except for `without_stdlib`.
    """

    type_name = "room"

    room = fields.StringField()
    may_import: Any = fields.ListField(subfield=fields.StringField())
    without_stdlib: Any = fields.ListField(
        subfield=fields.StringField(), required=False, default=[]
    )

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every import that the contract does not allow."""
        room = str(self.room)
        if room not in graph.modules:
            return ContractCheck(
                kept=True, warnings=[f"the package {room} does not exist"], metadata={"broken": []}
            )
        broken = [
            f"{importer} -> {imported} (line {_lines(graph, importer, imported)})"
            for importer in sorted({room, *graph.find_descendants(room)})
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if not self._is_open(imported)
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

    def _is_open(self, imported: str) -> bool:
        if _is_within(imported, str(self.room)):
            return True
        if any(
            _is_within(imported, allowed) and (allowed != "kraftsim" or imported == allowed)
            for allowed in self.may_import
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
        for module in found:
            spec = importlib.util.find_spec(module)
            assert spec is not None and spec.origin is not None, (
                f"{module} is a module of the graph"
            )
            for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
                broken += [
                    f"{module} -> {imported} (line {getattr(node, 'lineno', 0)})"
                    for imported in _imported(node)
                    if not self._is_allowed(imported, pattern)
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

    def _is_allowed(self, imported: str, pattern: re.Pattern[str]) -> bool:
        if pattern.fullmatch(imported) or any(
            _is_within(imported, each) for each in self.may_import
        ):
            return True
        first = imported.partition(".")[0]
        return first in sys.stdlib_module_names and first not in self.without_stdlib


def _imported(node: ast.AST) -> list[str]:
    """Return the modules that a node of a syntax tree imports."""
    match node:
        case ast.Import(names=names):
            return [each.name for each in names]
        case ast.ImportFrom(module=str(module)):
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
