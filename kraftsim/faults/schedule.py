"""All faults of one run together: armed at one moment, healed at another, counted at the end."""

from collections.abc import Sequence

import msgspec

from kraftsim.faults.arm import arm, tally
from kraftsim.faults.fault import Fault
from kraftsim.faults.strike import NANOSECONDS_PER_MILLISECOND, Strike
from kraftsim.faults.trigger import AtTime
from kraftsim.world.simulated import Simulation


class FaultSchedule:
    """The faults that were drawn for a run. Their times count from the moment they are armed."""

    def __init__(self, simulation: Simulation, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        self._simulation = simulation
        self._strikes: list[Strike] = []

    @property
    def strikes(self) -> tuple[Strike, ...]:
        """What became of each fault, in the order of `faults`; empty before they are armed."""
        return tuple(self._strikes)

    def arm(self) -> None:
        """Tie every fault to the simulation."""
        now_ms = self._simulation.now_ns // NANOSECONDS_PER_MILLISECOND
        keys = keys_of(self.faults)
        self._strikes += [arm(_counted_from(fault, now_ms), self._simulation, key) for fault, key in zip(self.faults, keys, strict=True)]

    def heal(self) -> None:
        """Undo every fault that lasts, and let none strike any more."""
        for strike in self._strikes:
            strike.end()

    def counts(self) -> dict[str, tuple[int, int, int]]:
        """Return armed, fired and bit by kind, sorted by kind."""
        return {kind: (count.armed, count.fired, count.bit) for kind, count in tally(self._strikes).items()}


def keys_of(faults: Sequence[Fault]) -> list[str]:
    """Return what the random numbers of each fault are keyed by: what it is, and its number among its equals.

    So a fault that is left out shifts no other's draws: it makes no difference which of several equal ones is gone.
    """
    counts: dict[str, int] = {}
    keys = []
    for fault in faults:
        text = msgspec.json.encode(fault, order="sorted").decode()
        counts[text] = counts.get(text, 0) + 1
        keys.append(f"{text}#{counts[text]}")
    return keys


def _counted_from(fault: Fault, now_ms: int) -> Fault:
    if not isinstance(fault.trigger, AtTime):
        return fault
    return msgspec.structs.replace(fault, trigger=AtTime(at_ms=fault.trigger.at_ms + now_ms))
