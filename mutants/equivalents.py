"""Mutants of the generator that nothing can tell from the right rules, and why."""

from collections.abc import Mapping
from typing import Final

EQUIVALENT: Final[Mapping[str, str]] = {
    "manager.ProducerStateManager._check_sequence/bound-3": "equal epochs have returned three lines above: only lower ones come here",
}
