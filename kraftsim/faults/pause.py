"""A process stands still for a while, as in a long garbage collection: its peers hear nothing, and all that waited happens at once afterwards."""

from kraftsim.faults.fault import Between, Family, FaultKind
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Stop the target's process now and let it go on later."""
    simulation = strike.simulation
    host = simulation.host(strike.target)
    paused = simulation.pause(host)

    def resume() -> None:
        waited = simulation.resume(host) if host.process is paused else 0
        if waited:
            strike.bite(f"{waited} callbacks had to wait")

    strike.lasting(resume, strike.integer("duration_ms"))


FAULT = FaultKind(
    name="pause",
    title="a process that stands still",
    family=Family.PROCESS,
    strike=strike,
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(100, 6000)},
)
