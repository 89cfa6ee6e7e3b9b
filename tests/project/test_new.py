"""`kraftsim new` writes files that lint, type-check and import, and names tests that exist."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftsim.cli.main import kraftsim
from kraftsim.cli.new import KINDS, MODULES

PROJECT_ROOT = Path(__file__).parents[2]
SOURCES = ("kraftsim", "protocol", "scenarios")
NAMES = {
    "api": "DescribeThing",
    "scenario": "coordinator_moves_twice",
    "invariant": "epochs-never-decrease",
    "fault": "slow-name-lookup",
    "bug": "KAFKA-99999-marker-twice",
}
LISTED = {
    "scenario": ("scenarios", "coordinator_moves_twice"),
    "invariant": ("invariants", "epochs-never-decrease"),
    "fault": ("faults", "slow-name-lookup"),
    "bug": ("bugs", "KAFKA-99999"),
}
MARK = "FILL" + " IN"


def new(*arguments: str) -> str:
    """Run `kraftsim new` in this process."""
    shown = CliRunner().invoke(kraftsim, ["new", *arguments])
    assert shown.exit_code == 0, shown.output
    return shown.output


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with one new entry of each kind."""
    root = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        shutil.copytree(
            PROJECT_ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy2(PROJECT_ROOT / "pyproject.toml", root)
    if (PROJECT_ROOT / ".mypy_cache").is_dir():
        shutil.copytree(PROJECT_ROOT / ".mypy_cache", root / ".mypy_cache")
    for kind, name in NAMES.items():
        new(kind, name, "--root", str(root))
    return root


def run(tree: Path, *command: str) -> str:
    """Run a command in the copy, whose packages are first on the path."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def written(tree: Path) -> list[str]:
    """The files of the copy that contain the placeholder, except for the templates."""
    files = (file for name in SOURCES for file in (tree / name).rglob("*.py"))
    found = (file.relative_to(tree).as_posix() for file in files if MARK in file.read_text())
    return sorted(each for each in found if not each.startswith("kraftsim/cli/"))


def test_every_template_writes_its_files(tree: Path) -> None:
    files = written(tree)
    assert len(files) == sum(len(kind.files) for kind in KINDS.values()) + 1, files
    assert "protocol/api_keys.py" in files and "protocol/messages/k95_describe_thing.py" in files


def test_generated_code_passes_the_linter(tree: Path) -> None:
    run(tree, "-m", "ruff", "check", *written(tree))
    run(tree, "-m", "ruff", "format", "--check", *written(tree))


@pytest.mark.interop
def test_generated_code_passes_the_type_checker(tree: Path) -> None:
    scenario = f"scenarios.{NAMES['scenario']}"
    run(tree, "-m", "mypy", "-p", "kraftsim", "-p", "protocol", "-m", scenario)


@pytest.mark.parametrize("kind", LISTED)
def test_a_new_entry_is_in_its_catalogue(tree: Path, kind: str) -> None:
    plural, name = LISTED[kind]
    names = [line.split()[0] for line in run(tree, "-m", "kraftsim", "list", plural).splitlines()]
    assert name in names


def test_a_new_api_is_declared_and_served(tree: Path) -> None:
    program = (
        "from kraftsim.server.forwarding import broker_handlers as handlers\n"
        "from protocol.api_keys import ApiKey as Key\n"
        "from protocol.messages.registry import versions_of\n"
        "key = Key.DESCRIBE_THING\n"
        "print(int(key), versions_of(key), any(each.key == key for each in handlers()))"
    )
    assert run(tree, "-c", program).split() == ["95", "(0,", "0)", "True"]


def test_a_new_scenario_runs(tree: Path) -> None:
    options = ("--work", "work_ms=500", "--work", "records_per_writer=10")
    out = str(tree / "run")
    run(tree, "-m", "kraftsim", "scenario", NAMES["scenario"], "--out", out, *options)
    assert (tree / "run" / "run.json").exists()


def test_an_existing_name_is_refused(tree: Path) -> None:
    shown = CliRunner().invoke(kraftsim, ["new", "bug", NAMES["bug"], "--root", str(tree)])
    assert shown.exit_code != 0 and "exists: choose another name" in shown.output


def test_a_name_with_other_characters_is_refused(tree: Path) -> None:
    shown = CliRunner().invoke(kraftsim, ["new", "fault", "../away", "--root", str(tree)])
    assert shown.exit_code != 0 and "is no name" in shown.output


def test_no_committed_file_has_template_placeholders() -> None:
    assert not written(PROJECT_ROOT)


@pytest.mark.parametrize("kind", KINDS)
def test_the_printed_advice_names_existing_tests_and_modules(kind: str) -> None:
    named = [re.match(r"[\w/.*]+", test) for test in KINDS[kind].tests]
    assert all(each and list(PROJECT_ROOT.glob(each[0])) for each in named), KINDS[kind].tests
    folders = [PROJECT_ROOT / path.rpartition("/")[0] for path in KINDS[kind].files]
    assert all(folder.is_dir() for folder in folders)
    files = [PROJECT_ROOT / f"{module.replace('.', '/')}.py" for module in MODULES.values()]
    assert not [file for file in files if not file.is_file()]
