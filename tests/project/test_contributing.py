"""CONTRIBUTING.md, the pre-commit hooks and the Makefile are consistent."""

import re
import tomllib
from pathlib import Path

import yaml

from kraftsim.cli.new import KINDS

PROJECT_ROOT = Path(__file__).parents[2]


def test_hooks_run_the_checks_of_the_makefile() -> None:
    hooks = yaml.safe_load((PROJECT_ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [each["repo"] for each in hooks] == ["local"], "nothing is downloaded"
    entries = [hook["entry"].removeprefix(".venv/bin/") for hook in hooks[0]["hooks"]]
    makefile = (PROJECT_ROOT / "Makefile").read_text().replace("$(BIN)/", "")
    tools = {entry.split()[0] for entry in entries}
    assert tools == {"ruff", "mypy", "lint-imports"}
    assert all(re.search(rf"^\t{tool} ?.*$", makefile, flags=re.M) for tool in tools)


def test_types_are_checked_in_every_package() -> None:
    """A call with wrong arguments fails in `make types`, and not only when its file is run."""
    tools = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["tool"]
    assert sorted(tools["mypy"]["packages"]) == sorted(
        tools["ruff"]["lint"]["isort"]["known-first-party"]
    )


def test_contributing_explains_every_template() -> None:
    text = (PROJECT_ROOT / "CONTRIBUTING.md").read_text()
    assert not [kind for kind in KINDS if f"kraftsim new {kind} " not in text]


def test_targets_that_use_the_virtual_environment_install_it() -> None:
    """On a fresh machine any target may be the first."""
    makefile = (PROJECT_ROOT / "Makefile").read_text()
    rules = re.findall(
        r"^([a-z-]+):(?!=)([^#\n]*)[^\n]*\n((?:(?:\t|ifeq|else|endif)[^\n]*\n)*)",
        makefile,
        flags=re.M,
    )
    needs = {target: needed.split() for target, needed, _ in rules}

    def installs(target: str) -> bool:
        return target == "setup" or any(installs(needed) for needed in needs.get(target, ()))

    users = [
        target
        for target, _, recipe in rules
        if re.search(r"\$\((BIN|PYTEST)\)|\$\(call asked", recipe)
    ]
    assert len(users) > 25 and not [target for target in users if not installs(target)]
