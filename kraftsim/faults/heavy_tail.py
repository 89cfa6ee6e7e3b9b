"""Most bytes between hosts come as fast as ever, and now and then some take very much longer: a latency with a heavy tail.

The delay of those few follows a Pareto distribution, as in networks with lost packets and full queues; means say nothing of it. Whatever comes behind
delayed bytes on the same connection waits with them.
"""

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind, OneOf
from kraftsim.faults.field import Condition, FieldStrike
from kraftsim.faults.slow_link import slow_links
from kraftsim.faults.strike import NANOSECONDS_PER_MILLISECOND, Strike

SHAPE = 1.1
"""Pareto's alpha: this close to 1 the longest delay of a thousand is hundreds of times the usual one."""


def strike(strike: Strike) -> None:
    """Give the links of the target a heavy tail for a while; it bites when bytes are in the tail."""
    share = strike.integer("permille") / 1000
    scale_ns = strike.integer("scale_ms") * NANOSECONDS_PER_MILLISECOND
    longest_ns = strike.integer("longest_ms") * NANOSECONDS_PER_MILLISECOND

    def delay(size_bytes: int) -> int:
        if strike.random.random() >= share:
            return 0
        if size_bytes:
            strike.bite("bytes came very late")
        return min(int(scale_ns / (1.0 - strike.random.random()) ** (1 / SHAPE)), longest_ns)

    slow_links(strike, delay)


async def over_sockets(strike: FieldStrike) -> None:
    """Let the proxy delay some of what it reads."""
    condition = Condition(
        tail_permille=strike.integer("permille"), tail_scale_ms=strike.integer("scale_ms"), tail_longest_ms=strike.integer("longest_ms")
    )
    await strike.while_it_lasts(strike.links(), condition, strike.integer("duration_ms"))


FAULT = FaultKind(
    name="heavy-tail",
    title="a network that is slow now and then, and then very slow",
    family=Family.NETWORK,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"permille": 50, "scale_ms": 20, "longest_ms": 5000, "duration_ms": 10_000},
    aim=Aim.LINK,
    draws={
        "permille": OneOf((10, 50, 200)),
        "scale_ms": Between(5, 200),
        "longest_ms": OneOf((500, 2000, 10_000)),
        "duration_ms": Between(500, 8000),
    },
)
