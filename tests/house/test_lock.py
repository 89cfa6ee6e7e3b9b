"""The lock files pin all dependencies, by hash and without an index URL."""

import re
import tomllib
from pathlib import Path

import pytest

PROJECT_ROOT = Path(__file__).parents[2]
LOCKS = (
    "requirements-core.lock",
    "requirements-analysis.lock",
    "requirements.lock",
    "requirements-java.lock",
    "requirements-fuzz.lock",
)
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")


def pins(lock: str) -> dict[str, str]:
    """Package -> version."""
    return {
        found[1].lower(): found[2]
        for line in (PROJECT_ROOT / lock).read_text().splitlines()
        if (found := PINNED.match(line))
    }


def wanted(*groups: str) -> set[str]:
    """Dependencies in pyproject.toml: the run-time ones, and those of the named extras."""
    project = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for group in groups for line in project["optional-dependencies"][group]),
    ]
    return {re.split(r"[\[<>=! ]", line)[0].lower() for line in lines}


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_files_carry_hashes_and_no_address(lock: str) -> None:
    text = (PROJECT_ROOT / lock).read_text()
    assert "://" not in text
    assert "--index" not in text
    packages = re.split(r"^(?=[A-Za-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.M), flags=re.M)
    assert all("--hash=sha256:" in package for package in packages if package.strip())


def test_lock_files_pin_what_pyproject_asks_for() -> None:
    assert wanted("build") <= set(pins("requirements-core.lock"))
    assert wanted("build", "analysis", "clients", "http", "dev") <= set(pins("requirements.lock"))
    assert wanted("build", "analysis", "clients", "java") <= set(pins("requirements-analysis.lock"))
    assert wanted("build", "fuzz") <= set(pins("requirements-fuzz.lock"))
    assert wanted("java") - wanted() <= set(pins("requirements-java.lock"))


def test_core_lock_pins_the_tested_versions() -> None:
    assert pins("requirements-core.lock").items() <= pins("requirements.lock").items()
