"""The doors of the house hold, and the check that holds them can fail."""

import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

from tests.house.room_contract import RoomContract

HOUSE = Path(__file__).parents[2]
ROWS = {row["room"]: row for row in tomllib.loads((HOUSE / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]}
WITHOUT_ROW = {"kraftsim.cli"}
"""It drives everything, and imports each room inside the verb that needs it: tests/house/test_command_line.py."""


def test_no_room_imports_through_a_wall():
    """docs/architecture.md, section 1."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run([sys.executable, "-c", program, "--no-logo", "--no-cache"], cwd=HOUSE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_room_has_a_row():
    rooms = {"protocol", "scenarios"} | {f"kraftsim.{place.name}" for place in (HOUSE / "kraftsim").iterdir() if (place / "__init__.py").exists()}
    assert rooms - WITHOUT_ROW <= set(ROWS)


@pytest.mark.parametrize(
    ("imported", "is_kept"),
    [
        ("core.inside", True),  # the room itself
        ("protocol.batches", True),  # below an open door
        ("protocolx", False),  # beside an open door
        ("node.broker", False),  # no door
        ("dataclasses", True),  # the standard library
        ("asyncio", False),  # what the row takes out of it
        ("requests", False),  # a package that the row does not name
    ],
)
def test_a_room_imports_only_what_its_row_names(imported, is_kept):
    graph = grimp.ImportGraph()
    for module in ("core", "core.rules", imported):
        graph.add_module(module)
    graph.add_import(importer="core.rules", imported=imported, line_number=3, line_contents="import it")
    row = RoomContract("a row", {"root_packages": ["core"]}, {"room": "core", "may_import": ["protocol"], "without_stdlib": ["asyncio"]})
    check = row.check(graph, verbose=False)
    assert check.kept == is_kept
    assert check.metadata["broken"] == ([] if is_kept else [f"core.rules -> {imported} (line 3)"])
