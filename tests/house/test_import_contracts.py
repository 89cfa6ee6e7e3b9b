"""The import contracts of the codebase hold, and their check can fail."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

from tools.import_contracts import PackageContract, RulesContract

PROJECT_ROOT = Path(__file__).parents[2]
ROWS = {
    row.get("room", row["id"]): row
    for row in tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
}
PACKAGES = PROJECT_ROOT / "kraftsim"
WITHOUT_ROW = {"kraftsim.cli", "kraftsim.lab"}
"""The CLI uses everything, and imports each package inside the command that needs it:
tests/house/test_command_line.py.
"""


def test_no_package_breaks_its_import_contract() -> None:
    """docs/architecture.md, section 1."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--no-logo", "--no-cache"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_has_an_import_contract() -> None:
    rooms = {"protocol", "scenarios"} | {
        f"kraftsim.{place.name}" for place in PACKAGES.iterdir() if (place / "__init__.py").exists()
    }
    concerns = {f"kraftsim.{path.parent.name}" for path in PACKAGES.glob("*/rules*.py")}
    assert "kraftsim.raft" in concerns and "concerns" in ROWS
    patterns = [row["modules"] for row in ROWS.values() if row["type"] == "rules"]
    assert not [
        room
        for room in rooms - WITHOUT_ROW - concerns - set(ROWS)
        if not any(re.fullmatch(pattern, room) for pattern in patterns)
    ]


@pytest.mark.parametrize(
    ("imported", "is_kept"),
    [
        ("core.inside", True),  # the package itself
        ("protocol.records.batches", True),  # below an allowed package
        ("protocolx", False),  # same prefix as an allowed package
        ("node.broker", False),  # not allowed
        ("dataclasses", True),  # the standard library
        ("asyncio", False),  # excluded by the contract
        ("requests", False),  # a library that the contract does not name
    ],
)
def test_a_package_imports_only_what_its_contract_allows(imported: str, is_kept: bool) -> None:
    graph = grimp.ImportGraph()
    for module in ("core", "core.rules", imported):
        graph.add_module(module)
    graph.add_import(
        importer="core.rules", imported=imported, line_number=3, line_contents="import it"
    )
    row = PackageContract(
        "a row",
        {"root_packages": ["core"]},
        {"room": "core", "may_import": ["protocol"], "without_stdlib": ["asyncio"]},
    )
    check = row.check(graph, verbose=False)
    assert check.kept == is_kept
    assert check.metadata["broken"] == ([] if is_kept else [f"core.rules -> {imported} (line 3)"])


@pytest.mark.parametrize(
    ("source", "broken"),
    [
        ("from shelf.rules_other import x", []),
        ("import dataclasses", []),
        ("import asyncio", ["asyncio"]),
        (
            (
                "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shelf.shell import "
                "Shell"
            ),
            ["shelf.shell"],
        ),
        ("def late():\n    import time", ["time"]),
        (
            "import importlib\n\nimportlib.import_module('shelf.shell')",
            ["importlib", "importlib.import_module(...)"],
        ),
    ],
)
def test_rules_are_pure_in_any_folder(
    source: str, broken: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imports for type checkers and within functions count; strings do not go around the
    contract.
    """
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "__init__.py").touch()
    (shelf / "rules_one.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shelf", raising=False)
    graph = grimp.ImportGraph()
    for module in ("shelf", "shelf.rules_one", "shelf.shell"):
        graph.add_module(module)
    options = {
        "modules": r"shelf\.rules\w*",
        "may_import": [],
        "without_stdlib": ["asyncio", "time", "importlib"],
    }
    check = RulesContract("rules", {"root_packages": ["shelf"]}, options).check(
        graph, verbose=False
    )
    assert [line.split(" -> ")[1].split(" (line")[0] for line in check.metadata["broken"]] == broken


def test_a_rules_contract_without_modules_is_broken() -> None:
    options = {"modules": "nothing", "may_import": [], "without_stdlib": []}
    assert (
        not RulesContract("rules", {"root_packages": ["kraftsim"]}, options)
        .check(grimp.ImportGraph(), verbose=False)
        .kept
    )
