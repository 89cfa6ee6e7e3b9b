"""All faults of one run together: armed at one moment, healed at another, counted at the end."""

from collections.abc import Sequence

import msgspec

from kraftsim.lab.faults.arm import arm, tally
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.injection import NANOSECONDS_PER_MILLISECOND, Injection
from kraftsim.lab.faults.trigger import AtTime
from kraftsim.world.simulated import Simulation


class FaultSchedule:
    """The faults of a run. Their times count from the moment they are armed."""

    def __init__(self, simulation: Simulation, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        self._simulation = simulation
        self._strikes: list[Injection] = []

    @property
    def injections(self) -> tuple[Injection, ...]:
        """The state of each fault, in the order of `faults`; empty before they are armed."""
        return tuple(self._strikes)

    def arm(self) -> None:
        """Arm every fault in the simulation."""
        now_ms = self._simulation.now_ns // NANOSECONDS_PER_MILLISECOND
        keys = keys_of(self.faults)
        self._strikes += [
            arm(_counted_from(fault, now_ms), self._simulation, key)
            for fault, key in zip(self.faults, keys, strict=True)
        ]

    def heal(self) -> None:
        """End every fault that lasts, and disarm the others."""
        for injection in self._strikes:
            injection.end()

    def counts(self) -> dict[str, tuple[int, int, int]]:
        """Return armed, fired and effective counts, sorted by kind."""
        return {
            kind: (count.armed, count.fired, count.bit)
            for kind, count in tally(self._strikes).items()
        }


def keys_of(faults: Sequence[Fault]) -> list[str]:
    """Return the keys of each fault's random numbers: the fault itself, and its number among equal
    faults.

    So leaving out a fault changes no other fault's random numbers: it makes no difference which of
    several equal ones is left out.
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
