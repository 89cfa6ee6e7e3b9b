"""A processor is slow for a while: every callback of the host takes time, and what comes meanwhile has to wait.

Otherwise no callback takes any virtual time at all, so that "n times as slow" is said as a time per callback.
"""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.faults.strike import Strike

NANOSECONDS_PER_MICROSECOND = 1000


def strike(strike: Strike) -> None:
    """Let every callback of the target take `step_us`; it bites when others have to wait for one."""

    def on_wait(waiting: int) -> None:
        strike.bite(f"{waiting} callbacks had to wait for the processor")

    step_ns = strike.integer("step_us") * NANOSECONDS_PER_MICROSECOND
    strike.lasting(strike.simulation.slow_down(strike.target, step_ns, on_wait), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="slow-cpu",
    title="a processor that is slow",
    family=Family.PROCESS,
    strike=strike,
    strikes_on=("time", "event"),
    params={"step_us": 1000, "duration_ms": 5000},
    draws={"step_us": OneOf((50, 500, 2000, 10_000)), "duration_ms": Between(500, 6000)},
)
