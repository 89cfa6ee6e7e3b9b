"""Bytes between hosts take longer than usual, by a constant and a random part."""

from collections.abc import Callable

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.faults.field import Condition, FieldStrike
from kraftsim.faults.strike import NANOSECONDS_PER_MILLISECOND, Strike


def strike(strike: Strike) -> None:
    """Slow the links of the target for a while; it bites when bytes are sent."""
    latency_ns = strike.integer("latency_ms") * NANOSECONDS_PER_MILLISECOND
    jitter_ns = strike.integer("jitter_ms") * NANOSECONDS_PER_MILLISECOND

    def delay(size_bytes: int) -> int:
        if size_bytes:
            strike.bite("bytes were delayed")
        return latency_ns + int(strike.random.random() * jitter_ns)

    slow_links(strike, delay)


def slow_links(strike: Strike, delay: Callable[[int], int]) -> None:
    """Let everything on the links of the target take longer by what a function says of its bytes, for as long as the fault lasts."""
    network = strike.simulation.network
    pairs = strike.directions()
    for source, target in pairs:
        network.slow(source, target, delay)

    def hasten() -> None:
        for source, target in pairs:
            network.hasten(source, target, delay)

    strike.lasting(hasten, strike.integer("duration_ms"))


async def over_sockets(strike: FieldStrike) -> None:
    """Let the proxy delay what is sent."""
    condition = Condition(latency_ms=strike.integer("latency_ms"), jitter_ms=strike.integer("jitter_ms"))
    await strike.while_it_lasts(strike.links(), condition, strike.integer("duration_ms"))


FAULT = FaultKind(
    name="slow-link",
    title="a slow network",
    family=Family.NETWORK,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"latency_ms": 500, "jitter_ms": 1000, "duration_ms": 10_000},
    aim=Aim.LINK,
    draws={"latency_ms": Between(5, 300), "jitter_ms": Between(5, 300), "duration_ms": Between(500, 6000)},
)
