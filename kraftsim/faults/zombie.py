"""A process stands still until its place is taken, and goes on as if nothing had happened: a leader, or a broker, of yesterday.

Another controller is elected, or the broker is fenced; only then does it wake up, with everything that it was about to do.
"""

from kraftsim.faults.fault import Between, Family, FaultKind
from kraftsim.faults.standing import standing_of
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import Occasion


def strike(strike: Strike) -> None:
    """Stop the target; wake it `after_ms` after its place was taken, or after `duration_ms`. It bites in the first case."""
    simulation = strike.simulation
    host = simulation.host(strike.target)
    is_leader = standing_of(simulation).leader() == host.name
    paused = simulation.pause(host)
    node_id = host.name.rpartition("-")[2]

    def wake() -> None:
        if host.process is paused:
            simulation.resume(host)

    def taken(occasion: Occasion) -> None:
        if strike.is_over or not paused.is_alive or occasion.host == host.name:
            return
        strike.bite("its place was taken while it stood still")
        strike.after(strike.integer("after_ms"), strike.end)

    if is_leader:
        simulation.triggers.on_event(taken, kind="ControllerElected")
    elif node_id.isdecimal():
        simulation.triggers.on_event(taken, kind="BrokerFenced", fields={"broker_id": int(node_id)})
    strike.lasting(wake, strike.integer("duration_ms"))


FAULT = FaultKind(
    name="zombie",
    title="a process that wakes up when its place is taken",
    family=Family.PROCESS,
    strike=strike,
    params={"after_ms": 0, "duration_ms": 20_000},
    draws={"after_ms": Between(0, 500), "duration_ms": Between(3000, 8000)},
)
