"""Bytes between hosts take longer than usual, by a constant and a random part."""

from kraftsim.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.faults.strike import NANOSECONDS_PER_MILLISECOND, Strike


def strike(strike: Strike) -> None:
    """Slow the links of the target for a while; it bites when something is sent."""
    links = [strike.simulation.network.link(source, target) for source, target in strike.directions()]
    bite = strike.bite
    for link in links:
        link.slow(strike.integer("latency_ms") * NANOSECONDS_PER_MILLISECOND, strike.integer("jitter_ms") * NANOSECONDS_PER_MILLISECOND, bite)

    def hasten() -> None:
        for link in links:
            link.hasten(bite)

    strike.lasting(hasten, strike.integer("duration_ms"))


FAULT = FaultKind(
    name="slow-link",
    title="a slow network",
    family=Family.NETWORK,
    strike=strike,
    params={"latency_ms": 500, "jitter_ms": 1000, "duration_ms": 10_000},
    aim=Aim.LINK,
    draws={"latency_ms": Between(5, 300), "jitter_ms": Between(5, 300), "duration_ms": Between(500, 6000)},
)
