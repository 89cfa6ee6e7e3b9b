"""The import contracts of the codebase hold, and their check can fail."""

import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

from tests.house.package_contract import PackageContract

PROJECT_ROOT = Path(__file__).parents[2]
ROWS = {row["room"]: row for row in tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]}
WITHOUT_ROW = {"kraftsim.cli"}
"""The CLI uses everything, and imports each package inside the command that needs it: tests/house/test_command_line.py."""


def test_no_package_breaks_its_import_contract():
    """docs/architecture.md, section 1."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run([sys.executable, "-c", program, "--no-logo", "--no-cache"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_has_an_import_contract():
    rooms = {"protocol", "scenarios"} | {
        f"kraftsim.{place.name}" for place in (PROJECT_ROOT / "kraftsim").iterdir() if (place / "__init__.py").exists()
    }
    assert rooms - WITHOUT_ROW <= set(ROWS)


@pytest.mark.parametrize(
    ("imported", "is_kept"),
    [
        ("core.inside", True),  # the package itself
        ("protocol.batches", True),  # below an allowed package
        ("protocolx", False),  # same prefix as an allowed package
        ("node.broker", False),  # not allowed
        ("dataclasses", True),  # the standard library
        ("asyncio", False),  # excluded by the contract
        ("requests", False),  # a library that the contract does not name
    ],
)
def test_a_package_imports_only_what_its_contract_allows(imported, is_kept):
    graph = grimp.ImportGraph()
    for module in ("core", "core.rules", imported):
        graph.add_module(module)
    graph.add_import(importer="core.rules", imported=imported, line_number=3, line_contents="import it")
    row = PackageContract("a row", {"root_packages": ["core"]}, {"room": "core", "may_import": ["protocol"], "without_stdlib": ["asyncio"]})
    check = row.check(graph, verbose=False)
    assert check.kept == is_kept
    assert check.metadata["broken"] == ([] if is_kept else [f"core.rules -> {imported} (line 3)"])
