"""The contract type `room` of import-linter: a package imports only what its contract in pyproject.toml allows.

An allow list stays complete where a deny list does not: a new package, library or standard module is forbidden until a contract allows it.
Only direct imports are checked; since every package has a contract, indirect imports are checked by the contracts of the packages in between.
"""

import sys
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class PackageContract(Contract):
    """`room` may import itself, the packages in `may_import` with their subpackages (a root package alone means its `__init__`), and the standard
    library except for `without_stdlib`."""

    type_name = "room"

    room = fields.StringField()
    may_import: Any = fields.ListField(subfield=fields.StringField())
    without_stdlib: Any = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every import that the contract does not allow."""
        room = str(self.room)
        if room not in graph.modules:
            return ContractCheck(kept=True, warnings=[f"the package {room} does not exist"], metadata={"broken": []})
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
        output.print(f"Imports are allowed in pyproject.toml, in the contract of {self.room}; docs/architecture.md gives the reasons for them.")

    def _is_open(self, imported: str) -> bool:
        if _is_within(imported, str(self.room)):
            return True
        if any(_is_within(imported, allowed) and (allowed != "kraftsim" or imported == allowed) for allowed in self.may_import):
            return True
        return imported.partition(".")[0] in sys.stdlib_module_names and imported.partition(".")[0] not in self.without_stdlib


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _lines(graph: ImportGraph, importer: str, imported: str) -> str:
    details = graph.get_import_details(importer=importer, imported=imported)
    return ", ".join(str(detail["line_number"]) for detail in details)
