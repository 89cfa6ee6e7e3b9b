"""Most flushes of a disk take what they always take, a few take a hundred times as long: the tail of a distribution, not its mean."""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.faults.strike import NANOSECONDS_PER_MILLISECOND, Strike
from kraftsim.world.simulated.disk_faults import SlowTail


def strike(strike: Strike) -> None:
    """Let some flushes of the target's disk take long; it bites at the first of them."""
    limit_ns = strike.integer("limit_ms") * NANOSECONDS_PER_MILLISECOND
    ailment = SlowTail(permille=strike.integer("permille"), limit_ns=limit_ns, bite=strike.bite)
    strike.lasting(strike.simulation.host(strike.target).platter.faults.slow_down(ailment), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="slow-flush-tail",
    title="a disk of which some flushes take long",
    family=Family.DISK,
    strike=strike,
    params={"permille": 100, "limit_ms": 5000, "duration_ms": 10_000},
    draws={"permille": OneOf((20, 100, 300)), "limit_ms": OneOf((200, 1000, 5000)), "duration_ms": Between(1000, 8000)},
)
