"""Most flushes of a disk take their usual time, a few take a hundred times as long: the tail of a
distribution, not its mean.
"""

from kraftsim.lab.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import NANOSECONDS_PER_MILLISECOND, Injection
from kraftsim.world.simulated.disk_faults import SlowTail


def inject(injection: Injection) -> None:
    """Let some flushes of the target's disk take long; it is effective at the first of them."""
    limit_ns = injection.integer("limit_ms") * NANOSECONDS_PER_MILLISECOND
    ailment = SlowTail(
        permille=injection.integer("permille"),
        limit_ns=limit_ns,
        record_effect=injection.record_effect,
    )
    injection.lasting(
        injection.simulation.host(injection.target).durable.faults.slow_down(ailment),
        injection.integer("duration_ms"),
    )


FAULT = FaultKind(
    name="slow-flush-tail",
    title="a disk with a few very slow flushes",
    family=Family.DISK,
    inject=inject,
    params={"permille": 100, "limit_ms": 5000, "duration_ms": 10_000},
    draws={
        "permille": OneOf((20, 100, 300)),
        "limit_ms": OneOf((200, 1000, 5000)),
        "duration_ms": Between(1000, 8000),
    },
)
