"""Bytes between hosts take longer than usual, by a constant and a random part."""

from collections.abc import Callable

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.lab.faults.field import Condition, SocketInjection
from kraftsim.lab.faults.injection import NANOSECONDS_PER_MILLISECOND, Injection


def inject(injection: Injection) -> None:
    """Slow the links of the target for a while; it is effective when bytes are sent."""
    latency_ns = injection.integer("latency_ms") * NANOSECONDS_PER_MILLISECOND
    jitter_ns = injection.integer("jitter_ms") * NANOSECONDS_PER_MILLISECOND

    def delay(size_bytes: int) -> int:
        if size_bytes:
            injection.record_effect("bytes were delayed")
        return latency_ns + int(injection.random.random() * jitter_ns)

    slow_links(injection, delay)


def slow_links(injection: Injection, delay: Callable[[int], int]) -> None:
    """Delay the bytes on the links of the target by the result of a function, while the fault
    lasts.
    """
    network = injection.simulation.network
    pairs = injection.directions()
    for source, target in pairs:
        network.slow(source, target, delay)

    def hasten() -> None:
        for source, target in pairs:
            network.hasten(source, target, delay)

    injection.lasting(hasten, injection.integer("duration_ms"))


async def over_sockets(injection: SocketInjection) -> None:
    """Delay bytes in the proxy."""
    condition = Condition(
        latency_ms=injection.integer("latency_ms"), jitter_ms=injection.integer("jitter_ms")
    )
    await injection.while_it_lasts(injection.links(), condition, injection.integer("duration_ms"))


FAULT = FaultKind(
    name="slow-link",
    title="a slow network",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"latency_ms": 500, "jitter_ms": 1000, "duration_ms": 10_000},
    aim=Aim.LINK,
    draws={
        "latency_ms": Between(5, 300),
        "jitter_ms": Between(5, 300),
        "duration_ms": Between(500, 6000),
    },
)
