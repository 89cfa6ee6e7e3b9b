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
        self._strikes += [arm(_counted_from(fault, now_ms), self._simulation) for fault in self.faults]

    def heal(self) -> None:
        """Undo every fault that lasts, and let none strike any more."""
        for strike in self._strikes:
            strike.end()

    def counts(self) -> dict[str, tuple[int, int, int]]:
        """Return armed, fired and bit by kind, sorted by kind."""
        return {kind: (count.armed, count.fired, count.bit) for kind, count in tally(self._strikes).items()}


def _counted_from(fault: Fault, now_ms: int) -> Fault:
    if not isinstance(fault.trigger, AtTime):
        return fault
    return msgspec.structs.replace(fault, trigger=AtTime(at_ms=fault.trigger.at_ms + now_ms))
