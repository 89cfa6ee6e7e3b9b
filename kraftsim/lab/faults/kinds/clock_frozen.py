"""A host's wall clock is frozen for a while: all timestamps are equal, and nothing expires."""

from kraftsim.lab.faults.fault import Between, Family, FaultKind
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Freeze the wall clock; it is effective when it is read and is late."""
    clock = injection.simulation.host(injection.target).clock
    injection.lasting(clock.freeze_for(injection.record_effect), injection.integer("duration_ms"))


FAULT = FaultKind(
    name="clock-frozen",
    title="a frozen wall clock",
    family=Family.CLOCK,
    inject=inject,
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(500, 8000)},
)
