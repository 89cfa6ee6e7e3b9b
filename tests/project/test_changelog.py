"""CHANGELOG.md matches the version, and changelog.d contains fragments that towncrier can
collect.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kraftsim import __version__

PROJECT_ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())
KINDS = [each["directory"] for each in PROJECT["tool"]["towncrier"]["type"]]
APART = {"README.md", "template.md"}
FRAGMENTS = sorted(
    file for file in (PROJECT_ROOT / "changelog.d").iterdir() if file.name not in APART
)
WORDS_MAX = 80


def draft(directory: Path) -> str:
    """What towncrier would write for the fragments of a directory."""
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9"]
    options = ["--name", "kraftsim", "--dir", str(directory), "--config", "pyproject.toml"]
    done = subprocess.run(
        [*command, *options], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_newest_changelog_entry_is_that_of_the_version() -> None:
    text = (PROJECT_ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (\S+) - 20\d\d-[01]\d-[0-3]\d$", text, flags=re.M)
    assert versions and versions[0] == __version__


@pytest.mark.parametrize("file", FRAGMENTS, ids=lambda file: file.name)
def test_a_fragment_has_a_known_kind_and_few_words(file: Path) -> None:
    assert re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(KINDS)})\.md", file.name)
    assert 3 < len(file.read_text().split()) < WORDS_MAX


def test_towncrier_collects_every_fragment(tmp_path: Path) -> None:
    (tmp_path / "changelog.d").mkdir()
    for name in ("pyproject.toml", "CHANGELOG.md", "changelog.d/template.md"):
        (tmp_path / name).write_text((PROJECT_ROOT / name).read_text())
    for kind in KINDS:
        (tmp_path / "changelog.d" / f"one.{kind}.md").write_text(
            f"A sentence about what is {kind}.\n"
        )
    shown = draft(tmp_path)
    assert all(f"- A sentence about what is {kind}." in shown for kind in KINDS)
    assert shown.count("###") == len(KINDS) and "9.9.9" in shown and "one." not in shown
