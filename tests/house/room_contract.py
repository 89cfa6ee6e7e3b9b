"""The contract type `room` of import-linter: a room imports what its row in pyproject.toml names, and nothing else.

A list of what is allowed cannot be outgrown, as a list of what is forbidden can: a new room, package or standard module is shut until a row opens it.
Only direct imports are looked at; since every room has a row, longer ways are shut by the rows they lead through.
"""

import sys
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class RoomContract(Contract):
    """`room` may import itself, `may_import` with all that lies below (a root package alone stands for its own `__init__`), and the standard
    library but for `without_stdlib`."""

    type_name = "room"

    room = fields.StringField()
    may_import: Any = fields.ListField(subfield=fields.StringField())
    without_stdlib: Any = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every import that leaves the room through no door of its row."""
        room = str(self.room)
        if room not in graph.modules:
            return ContractCheck(kept=True, warnings=[f"the room {room} is not built yet"], metadata={"broken": []})
        broken = [
            f"{importer} -> {imported} (line {_lines(graph, importer, imported)})"
            for importer in sorted({room, *graph.find_descendants(room)})
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if not self._is_open(imported)
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each import that should not be."""
        for line in check.metadata["broken"]:
            output.print_error(f"- {line}", bold=False)
        output.print(f"A door is opened in pyproject.toml, in the row of {self.room}; docs/architecture.md says which doors there are and why.")

    def _is_open(self, imported: str) -> bool:
        if _is_within(imported, str(self.room)):
            return True
        if any(_is_within(imported, door) and (door != "kraftsim" or imported == door) for door in self.may_import):
            return True
        return imported.partition(".")[0] in sys.stdlib_module_names and imported.partition(".")[0] not in self.without_stdlib


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _lines(graph: ImportGraph, importer: str, imported: str) -> str:
    details = graph.get_import_details(importer=importer, imported=imported)
    return ", ".join(str(detail["line_number"]) for detail in details)
