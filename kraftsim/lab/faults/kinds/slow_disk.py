"""Flushes of a disk take longer than usual."""

from kraftsim.lab.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated.disk_faults import Slowness


def inject(injection: Injection) -> None:
    """Slow the target's disk for a while; it is effective when a flush takes longer."""
    ailment = Slowness(
        factor=float(injection.integer("factor")), record_effect=injection.record_effect
    )
    injection.lasting(
        injection.simulation.host(injection.target).durable.faults.slow_down(ailment),
        injection.integer("duration_ms"),
    )


FAULT = FaultKind(
    name="slow-disk",
    title="a slow disk",
    family=Family.DISK,
    inject=inject,
    params={"factor": 100, "duration_ms": 5000},
    draws={"factor": OneOf((20, 200, 1000)), "duration_ms": Between(500, 5000)},
)
