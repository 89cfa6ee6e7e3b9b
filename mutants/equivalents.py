"""Mutants of the generator that nothing can tell from the right rules, and why."""

from collections.abc import Mapping
from typing import Final

EQUIVALENT: Final[Mapping[str, str]] = {
    "log.PartitionLog.flush/bound-1": "the segments that are looked at then have been flushed, and are passed over two lines below",
    "log.PartitionLog.flush/bound-2": "a segment that was flushed to its end is flushed once more, which changes nothing",
    "manager.ProducerStateManager._check_sequence/bound-3": "equal epochs have returned three lines above: only lower ones come here",
}
