"""The results of the searches for historical bugs, in a file with one line per bug, sorted by name.

bench_bugs --write writes it; reference/bugs.md is generated from it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

FOUND: Final = Path(__file__).parents[2] / "docs" / "bugs.json"
REPETITIONS: Final = 20


class Hunt(msgspec.Struct, frozen=True, kw_only=True):
    """One repetition: the number of seeds until the bug was found, or of the whole range, and the
    violated invariants.
    """

    is_found: bool
    seeds: int
    cpu_seconds: float
    caught_by: tuple[str, ...] = ()
    is_by_scenario: bool = False
    """Whether the seed that found the bug had only faults of the scenario's own schedule."""


class BugHunts(msgspec.Struct, frozen=True, kw_only=True):
    """All repetitions for one bug in one scenario."""

    bug: str
    scenario: str
    hunts: tuple[Hunt, ...]


def read(path: Path = FOUND) -> dict[str, BugHunts]:
    """Return the stored results by bug name."""
    if not path.exists():
        return {}
    return {each.bug: each for each in msgspec.json.decode(path.read_bytes(), type=list[BugHunts])}


def write(known: Iterable[BugHunts], path: Path = FOUND) -> None:
    """Write all results."""
    lines = ",\n".join(
        msgspec.json.encode(each).decode() for each in sorted(known, key=lambda each: each.bug)
    )
    path.write_text(f"[\n{lines}\n]\n")
