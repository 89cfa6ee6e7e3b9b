"""The bandwidth between hosts is limited: faster writes queue up, and small frames wait behind
large ones.
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.lab.faults.field import Condition, SocketInjection
from kraftsim.lab.faults.injection import Injection

NANOSECONDS = 1_000_000_000


def inject(injection: Injection) -> None:
    """Limit the bandwidth of each link of the target, in each direction separately, for a while; it
    is effective when bytes wait for others.
    """
    network = injection.simulation.network
    bytes_per_second = injection.integer("bytes_per_second")
    narrowed = []
    for source, target in injection.directions():
        wait = _Queue(injection, bytes_per_second).wait
        network.slow(source, target, wait)
        narrowed.append((source, target, wait))

    def widen() -> None:
        for source, target, wait in narrowed:
            network.hasten(source, target, wait)

    injection.lasting(widen, injection.integer("duration_ms"))


class _Queue:
    """The transmission queue of one link."""

    def __init__(self, injection: Injection, bytes_per_second: int) -> None:
        self._inject = injection
        self._bytes_per_second = bytes_per_second
        self._free_at_ns = 0

    def wait(self, size_bytes: int) -> int:
        """Return how long a segment takes until its last byte is transmitted."""
        now_ns = self._inject.simulation.now_ns
        if size_bytes and self._free_at_ns > now_ns:
            self._inject.record_effect(f"{size_bytes} bytes waited for others")
        self._free_at_ns = (
            max(self._free_at_ns, now_ns) + size_bytes * NANOSECONDS // self._bytes_per_second
        )
        return self._free_at_ns - now_ns


async def over_sockets(injection: SocketInjection) -> None:
    """Limit the bandwidth in the proxy; it is effective when bytes wait for others."""
    await injection.while_it_lasts(
        injection.links(),
        Condition(bytes_per_second=injection.integer("bytes_per_second")),
        injection.integer("duration_ms"),
    )


FAULT = FaultKind(
    name="bandwidth-cap",
    title="a limited network bandwidth",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"bytes_per_second": 5000, "duration_ms": 10_000},
    aim=Aim.LINK,
    draws={"bytes_per_second": Between(500, 200_000), "duration_ms": Between(500, 8000)},
)
