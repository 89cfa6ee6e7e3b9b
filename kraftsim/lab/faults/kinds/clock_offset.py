"""A host's wall clock is wrong for a while: it drifts away from the correct time without a jump,
and back without one.
"""

from kraftsim.lab.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import NANOSECONDS_PER_MILLISECOND, Injection


def inject(injection: Injection) -> None:
    """Let the wall clock deviate by `by_ms` (ahead, or behind if negative); it is effective when it
    is read.
    """
    clock = injection.simulation.host(injection.target).clock
    injection.lasting(
        clock.slew_for(
            injection.integer("by_ms") * NANOSECONDS_PER_MILLISECOND, injection.record_effect
        ),
        injection.integer("duration_ms"),
    )


FAULT = FaultKind(
    name="clock-offset",
    title="a wall clock that is wrong",
    family=Family.CLOCK,
    inject=inject,
    triggers_on=("time", "event"),
    params={"by_ms": -2000, "duration_ms": 0},
    draws={"by_ms": OneOf((-5000, -500, 500, 5000)), "duration_ms": Between(500, 8000)},
)
