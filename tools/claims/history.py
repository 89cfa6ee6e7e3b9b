"""The commit at which a figure was measured: one that readers find in the history of the main
line.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PROJECT_ROOT = Path(__file__).parents[2]
MAIN_LINE: Final = ("main", "origin/main")
CHANGED: Final = "+"
"""Suffix of a commit: the measured code had further changes, which were committed with the
figure.
"""


def measured_commit() -> str:
    """Return the youngest main-line commit in the history of this code; with `+` if the code has
    further changes.

    Branches are rebased onto the main line, so the commits of a branch, including its HEAD, do not
    persist.
    """
    base = next(
        (found for name in MAIN_LINE if (found := _git("merge-base", "HEAD", name))),
        _git("rev-parse", "HEAD"),
    )
    is_changed = bool(
        _git("diff", "--name-only", base, "--", ".", ":!docs")
        or _git("ls-files", "--others", "--exclude-standard", "--", ":!docs")
    )
    return base[:9] + (CHANGED if is_changed else "")


def foreign_commits(commits: Iterable[str]) -> list[str]:
    """Return the commits, with or without `+`, that are not in the history of HEAD; none if the
    history is incomplete.
    """
    if _git("rev-parse", "--is-shallow-repository") != "false":
        return []
    return [name for name in sorted(set(commits)) if not _is_in_history(name.removesuffix(CHANGED))]


def _is_in_history(commit: str) -> bool:
    result = subprocess.run(
        ["git", "merge-base", "--is-ancestor", commit, "HEAD"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        check=False,
    )
    return result.returncode == 0


def _git(*words: str) -> str:
    try:
        return subprocess.run(
            ["git", *words], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
    except FileNotFoundError:
        return ""
