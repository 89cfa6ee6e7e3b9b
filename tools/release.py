"""Prepares a release: the version, the changelog, a commit and a tag. Nothing is pushed.

Usage: python -m tools.release VERSION
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

PROJECT_ROOT: Final = Path(__file__).parents[1]
VERSION_FILE: Final = Path("kraftsim/version.py")
VERSION_LINE: Final = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
VERSION: Final = re.compile(r"\d+\.\d+\.\d+(rc\d+)?")


class NotReady(Exception):
    """The tree, or the version that was asked for, does not allow a release."""


def main(arguments: list[str] | None = None) -> int:
    """Prepare the release; return an exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("version", help="the new version, for example 0.3.0 or 0.3.0rc1")
    version = parser.parse_args(arguments).version
    try:
        prepare(PROJECT_ROOT, version)
    except NotReady as reason:
        print(f"not released: {reason}", file=sys.stderr)
        return 3
    print(f"committed and tagged v{version}; next: git push --follow-tags")
    return 0


def prepare(root: Path, version: str) -> None:
    """Write the version and the changelog, commit and tag them. Raises NotReady."""
    check(root, version)
    file = root / VERSION_FILE
    file.write_text(VERSION_LINE.sub(f'__version__ = "{version}"', file.read_text()))
    _run(root, sys.executable, "-m", "towncrier", "build", "--yes", "--version", version)
    _run(root, "git", "add", "--all", str(VERSION_FILE), "CHANGELOG.md", "changelog.d")
    _run(root, "git", "commit", "--quiet", "-m", f"release: {version}")
    _run(root, "git", "tag", "--annotate", f"v{version}", "-m", f"kraftsim {version}")


def check(root: Path, version: str) -> None:
    """Raise NotReady unless the tree is clean, the version is a later one, and there is news."""
    if not VERSION.fullmatch(version):
        raise NotReady(f"{version} is no version: write X.Y.Z or X.Y.ZrcN")
    found = VERSION_LINE.search((root / VERSION_FILE).read_text())
    assert found is not None, f"{VERSION_FILE} has a line with the version"
    if _key(version) <= _key(found[1]):
        raise NotReady(f"{version} is not later than {found[1]}")
    if _run(root, "git", "status", "--porcelain").strip():
        raise NotReady("there are changes that are not committed: git status")
    if f"v{version}" in _run(root, "git", "tag", "--list").split():
        raise NotReady(f"the tag v{version} exists")
    if not any(file.name != "README.md" for file in (root / "changelog.d").glob("*.*.md")):
        raise NotReady("changelog.d has no fragment: nothing has changed for users")


def _key(version: str) -> tuple[int, int, int, float]:
    """Return what versions are ordered by: a candidate precedes its release."""
    numbers, _, candidate = version.partition("rc")
    major, minor, patch = map(int, numbers.split("."))
    return major, minor, patch, float(candidate) if candidate else float("inf")


def _run(root: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotReady(f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
