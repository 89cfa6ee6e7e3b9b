"""CONTRIBUTING.md, the pre-commit hooks and the Makefile say the same."""

import re
from pathlib import Path

import yaml

from kraftsim.cli.source_tree import KINDS

HOUSE = Path(__file__).parents[2]


def test_hooks_run_the_checks_of_the_makefile():
    hooks = yaml.safe_load((HOUSE / ".pre-commit-config.yaml").read_text())["repos"]
    assert [each["repo"] for each in hooks] == ["local"], "nothing is downloaded"
    entries = [hook["entry"].removeprefix(".venv/bin/") for hook in hooks[0]["hooks"]]
    makefile = (HOUSE / "Makefile").read_text().replace("$(BIN)/", "")
    tools = {entry.split()[0] for entry in entries}
    assert tools == {"ruff", "mypy", "lint-imports"}
    assert all(re.search(rf"^\t{tool} ?.*$", makefile, flags=re.M) for tool in tools)


def test_contributing_explains_every_kind_that_has_a_template():
    text = (HOUSE / "CONTRIBUTING.md").read_text()
    assert not [kind for kind in KINDS if f"kraftsim new {kind} " not in text]
