"""The event loop of a node stands still again and again, each time for a moment: garbage collections, synchronous work, a starved machine."""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Stop the target's process for `stall_ms`, `every_ms` anew; it bites when callbacks have to wait."""
    simulation = strike.simulation
    host = simulation.host(strike.target)

    def stall() -> None:
        if strike.is_over:
            return
        stalled = simulation.pause(host)

        def go_on() -> None:
            waited = simulation.resume(host) if host.process is stalled else 0
            if waited:
                strike.bite(f"{waited} callbacks had to wait")

        strike.after(strike.integer("stall_ms"), go_on)
        strike.after(strike.integer("every_ms"), stall)

    stall()
    strike.lasting(lambda: None, strike.integer("duration_ms"))


FAULT = FaultKind(
    name="loop-stalls",
    title="an event loop that stalls again and again",
    family=Family.PROCESS,
    strike=strike,
    strikes_on=("time", "event"),
    params={"stall_ms": 200, "every_ms": 400, "duration_ms": 5000},
    draws={"stall_ms": OneOf((20, 100, 400)), "every_ms": OneOf((500, 900)), "duration_ms": Between(1000, 6000)},
)
