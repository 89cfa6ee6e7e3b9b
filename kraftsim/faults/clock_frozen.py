"""A host's wall clock stands still for a while: everything happens at the same time, and nothing ever grows old."""

from kraftsim.faults.fault import Between, Family, FaultKind
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Stop the wall clock; it bites when it is read and is late."""
    clock = strike.simulation.host(strike.target).clock
    strike.lasting(clock.freeze_for(strike.bite), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="clock-frozen",
    title="a wall clock that stands still",
    family=Family.CLOCK,
    strike=strike,
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(500, 8000)},
)
