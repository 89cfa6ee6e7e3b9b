"""Only so many bytes a second fit through between hosts: what is written faster queues up, and small frames wait behind large ones."""

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.faults.field import Condition, FieldStrike
from kraftsim.faults.strike import Strike

NANOSECONDS = 1_000_000_000


def strike(strike: Strike) -> None:
    """Narrow each link of the target, in each direction by itself, for a while; it bites when bytes wait for others."""
    network = strike.simulation.network
    bytes_per_second = strike.integer("bytes_per_second")
    narrowed = []
    for source, target in strike.directions():
        wait = _Queue(strike, bytes_per_second).wait
        network.slow(source, target, wait)
        narrowed.append((source, target, wait))

    def widen() -> None:
        for source, target, wait in narrowed:
            network.hasten(source, target, wait)

    strike.lasting(widen, strike.integer("duration_ms"))


class _Queue:
    """What is being sent over one link, one after the other."""

    def __init__(self, strike: Strike, bytes_per_second: int) -> None:
        self._strike = strike
        self._bytes_per_second = bytes_per_second
        self._free_at_ns = 0

    def wait(self, size_bytes: int) -> int:
        """Return how long a segment takes until its last byte is through."""
        now_ns = self._strike.simulation.now_ns
        if size_bytes and self._free_at_ns > now_ns:
            self._strike.bite(f"{size_bytes} bytes waited for others")
        self._free_at_ns = max(self._free_at_ns, now_ns) + size_bytes * NANOSECONDS // self._bytes_per_second
        return self._free_at_ns - now_ns


async def over_sockets(strike: FieldStrike) -> None:
    """Let the proxy pass only so much; it bites when bytes wait for others."""
    await strike.while_it_lasts(strike.links(), Condition(bytes_per_second=strike.integer("bytes_per_second")), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="bandwidth-cap",
    title="a narrow network",
    family=Family.NETWORK,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"bytes_per_second": 5000, "duration_ms": 10_000},
    aim=Aim.LINK,
    draws={"bytes_per_second": Between(500, 200_000), "duration_ms": Between(500, 8000)},
)
