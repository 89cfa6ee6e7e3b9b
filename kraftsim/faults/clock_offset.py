"""A host's wall clock is wrong for a while: it runs away from the right time without a jump, and is led back without one."""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.faults.strike import NANOSECONDS_PER_MILLISECOND, Strike


def strike(strike: Strike) -> None:
    """Let the wall clock go wrong by `by_ms` (ahead, or behind if negative); it bites when it is read so."""
    clock = strike.simulation.host(strike.target).clock
    strike.lasting(clock.slew_for(strike.integer("by_ms") * NANOSECONDS_PER_MILLISECOND, strike.bite), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="clock-offset",
    title="a wall clock that is wrong",
    family=Family.CLOCK,
    strike=strike,
    strikes_on=("time", "event"),
    params={"by_ms": -2000, "duration_ms": 0},
    draws={"by_ms": OneOf((-5000, -500, 500, 5000)), "duration_ms": Between(500, 8000)},
)
