"""A host's clocks run too fast or too slow for a while, the monotonic one as well: its time-outs
come too early or too late.
"""

from kraftsim.lab.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Let both clocks drift; it is effective once one is read that is a millisecond off."""
    clock = injection.simulation.host(injection.target).clock
    injection.lasting(
        clock.drift_for(injection.integer("ppm"), injection.record_effect),
        injection.integer("duration_ms"),
    )


FAULT = FaultKind(
    name="clock-drift",
    title="clocks that run too fast or too slow",
    family=Family.CLOCK,
    inject=inject,
    triggers_on=("time", "event"),
    params={"ppm": 100_000, "duration_ms": 0},
    draws={
        "ppm": OneOf((-500_000, -100_000, -1000, 1000, 100_000, 1_000_000)),
        "duration_ms": Between(1000, 8000),
    },
)
