"""Which commit a figure was measured of: one that whoever reads the figure finds in the history."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

HOUSE = Path(__file__).parents[1]
MAIN_LINE: Final = ("main", "origin/main")
CHANGED: Final = "+"
"""Behind a commit: the code that was measured has changes beyond it, which were committed with the figure."""


def measured_commit() -> str:
    """Return the youngest commit of the main line that the code here has; with `+` if the code has changes beyond it.

    A branch is replayed onto the main line, and its own commits are gone then; so is HEAD of a branch no name for what was measured.
    """
    base = next((found for name in MAIN_LINE if (found := _git("merge-base", "HEAD", name))), _git("rev-parse", "HEAD"))
    is_changed = bool(_git("diff", "--name-only", base, "--", ".", ":!docs") or _git("ls-files", "--others", "--exclude-standard", "--", ":!docs"))
    return base[:9] + (CHANGED if is_changed else "")


def foreign_commits(commits: Iterable[str]) -> list[str]:
    """Return which of some commits, with a `+` or not, are not in the history of HEAD; none where there is no whole history to ask."""
    if _git("rev-parse", "--is-shallow-repository") != "false":
        return []
    return [name for name in sorted(set(commits)) if not _is_in_history(name.removesuffix(CHANGED))]


def _is_in_history(commit: str) -> bool:
    told = subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], cwd=HOUSE, capture_output=True, check=False)
    return told.returncode == 0


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], cwd=HOUSE, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""
