"""A disk takes longer than usual for everything that it makes durable."""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.disk_faults import Slowness


def strike(strike: Strike) -> None:
    """Slow the target's disk for a while; it bites when a flush takes longer."""
    ailment = Slowness(factor=float(strike.integer("factor")), bite=strike.bite)
    strike.lasting(strike.simulation.host(strike.target).platter.faults.slow_down(ailment), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="slow-disk",
    title="a disk that is slow",
    family=Family.DISK,
    strike=strike,
    params={"factor": 100, "duration_ms": 5000},
    draws={"factor": OneOf((20, 200, 1000)), "duration_ms": Between(500, 5000)},
)
