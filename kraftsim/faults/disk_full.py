"""A disk takes no more bytes for a while: a write is refused, after a part of it was written."""

from kraftsim.faults.fault import Between, Family, FaultKind
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Fill the target's disk."""
    faults = strike.simulation.host(strike.target).platter.faults
    faults.full = strike.bite

    def free() -> None:
        faults.full = None

    strike.lasting(free, strike.integer("duration_ms"))


FAULT = FaultKind(
    name="disk-full",
    title="a disk without space",
    family=Family.DISK,
    strike=strike,
    params={"duration_ms": 10_000},
    draws={"duration_ms": Between(200, 3000)},
)
