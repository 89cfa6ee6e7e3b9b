"""A host's wall clock jumps forward: a virtual machine that was suspended, a first NTP
synchronisation.

Healing corrects it.
"""

from kraftsim.lab.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import NANOSECONDS_PER_MILLISECOND, Injection


def inject(injection: Injection) -> None:
    """Set the wall clock forward; it is effective when it is read."""
    clock = injection.simulation.host(injection.target).clock
    injection.lasting(
        clock.step_for(
            injection.integer("by_ms") * NANOSECONDS_PER_MILLISECOND, injection.record_effect
        ),
        injection.integer("duration_ms"),
    )


FAULT = FaultKind(
    name="clock-jump-forward",
    title="a wall clock that jumps forward",
    family=Family.CLOCK,
    inject=inject,
    params={"by_ms": 3_600_000, "duration_ms": 0},
    draws={
        "by_ms": OneOf((50, 10_000, 3_600_000, 8 * 86_400_000)),
        "duration_ms": Between(200, 6000),
    },
)
