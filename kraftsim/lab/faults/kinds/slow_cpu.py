"""A processor is slow for a while: every callback of the host takes time, and others have to wait.

Otherwise callbacks take no virtual time at all, so that the slowdown is a time per callback instead
of a factor.
"""

from kraftsim.lab.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection

NANOSECONDS_PER_MICROSECOND = 1000


def inject(injection: Injection) -> None:
    """Let every callback of the target take `step_us`; it is effective when others have to wait for
    one.
    """

    def on_wait(waiting: int) -> None:
        injection.record_effect(f"{waiting} callbacks had to wait for the processor")

    step_ns = injection.integer("step_us") * NANOSECONDS_PER_MICROSECOND
    injection.lasting(
        injection.simulation.slow_down(injection.target, step_ns, on_wait),
        injection.integer("duration_ms"),
    )


FAULT = FaultKind(
    name="slow-cpu",
    title="a slow processor",
    family=Family.PROCESS,
    inject=inject,
    triggers_on=("time", "event"),
    params={"step_us": 1000, "duration_ms": 5000},
    draws={"step_us": OneOf((50, 500, 2000, 10_000)), "duration_ms": Between(500, 6000)},
)
