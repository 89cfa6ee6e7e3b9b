"""The goals of figures, from `goals.toml`: a limit of the figure itself, or of its ratio to the
peer in the same run.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = Path(__file__).with_name("goals.toml")


class Goal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One limit; exactly one of the three is set."""

    at_most: float | None = None
    at_least: float | None = None
    ratio: float | None = None

    def __post_init__(self) -> None:
        limits = [self.at_most, self.at_least, self.ratio]
        if sum(each is not None for each in limits) != 1:
            raise ValueError("a goal is one of at_most, at_least and ratio")

    def words(self, unit: str) -> str:
        """Return the goal as text."""
        if self.ratio is not None:
            return f"ratio >= {self.ratio:g}"
        limit = self.at_least if self.at_most is None else self.at_most
        return f"{'>=' if self.at_most is None else '<='} {limit:,g} {unit}"


@cache
def goals() -> Mapping[str, Goal]:
    """Return all goals by the name of their figure."""
    return msgspec.toml.decode(FILE.read_bytes(), type=dict[str, Goal])
