"""Mutants of the generator that nothing can tell from the right rules, and why."""

from collections.abc import Mapping
from typing import Final

EQUIVALENT: Final[Mapping[str, str]] = {}
