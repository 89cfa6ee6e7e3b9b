"""Most bytes between hosts have the usual latency, but a few take very much longer: a heavy-tailed
latency.

Their delay follows a Pareto distribution, as in networks with lost packets and full queues; a mean
does not describe it. Bytes behind delayed bytes on the same connection are delayed, too.
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import Condition, SocketInjection
from kraftsim.lab.faults.injection import NANOSECONDS_PER_MILLISECOND, Injection
from kraftsim.lab.faults.kinds.slow_link import slow_links

SHAPE = 1.1
"""Pareto's alpha: this close to 1 the longest delay of a thousand is hundreds of times the usual
one.
"""


def inject(injection: Injection) -> None:
    """Give the links of the target a heavy-tailed latency for a while; it is effective when bytes
    are in the tail.
    """
    share = injection.integer("permille") / 1000
    scale_ns = injection.integer("scale_ms") * NANOSECONDS_PER_MILLISECOND
    longest_ns = injection.integer("longest_ms") * NANOSECONDS_PER_MILLISECOND

    def delay(size_bytes: int) -> int:
        if injection.random.random() >= share:
            return 0
        if size_bytes:
            injection.record_effect("bytes came very late")
        return min(int(scale_ns / (1.0 - injection.random.random()) ** (1 / SHAPE)), longest_ns)

    slow_links(injection, delay)


async def over_sockets(injection: SocketInjection) -> None:
    """Let the proxy delay some of its reads."""
    condition = Condition(
        tail_permille=injection.integer("permille"),
        tail_scale_ms=injection.integer("scale_ms"),
        tail_longest_ms=injection.integer("longest_ms"),
    )
    await injection.while_it_lasts(injection.links(), condition, injection.integer("duration_ms"))


FAULT = FaultKind(
    name="heavy-tail",
    title="a heavy-tailed network latency",
    family=Family.NETWORK,
    inject=inject,
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
