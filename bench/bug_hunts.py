"""What hunts for historical bugs came to, in a file beside the page that shows it: one line a bug, sorted by name.

The bench writes it with --write; reference/bugs.md is made of it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

FOUND: Final = Path(__file__).parents[1] / "docs" / "bugs.json"
REPETITIONS: Final = 20


class Hunt(msgspec.Struct, frozen=True, kw_only=True):
    """One repetition: seeds played until the bug was found, or all of the range, and what was violated then."""

    is_found: bool
    seeds: int
    cpu_seconds: float
    caught_by: tuple[str, ...] = ()
    is_by_story: bool = False
    """Whether the faults of the seed that found it were the story's own schedule alone."""


class BugHunts(msgspec.Struct, frozen=True, kw_only=True):
    """All repetitions for one bug in one story."""

    bug: str
    story: str
    hunts: tuple[Hunt, ...]


def read(path: Path = FOUND) -> dict[str, BugHunts]:
    """Return what is known, by the name of the bug."""
    if not path.exists():
        return {}
    return {each.bug: each for each in msgspec.json.decode(path.read_bytes(), type=list[BugHunts])}


def write(known: Iterable[BugHunts], path: Path = FOUND) -> None:
    """Write everything down."""
    lines = ",\n".join(msgspec.json.encode(each).decode() for each in sorted(known, key=lambda each: each.bug))
    path.write_text(f"[\n{lines}\n]\n")
