"""A process is killed, or its host loses power, and it is started again after a while on what is left of its disk."""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf, Spoils
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Take the target down now and start it again later, unless somebody else did."""
    simulation = strike.simulation
    host = simulation.host(strike.target)
    if not host.is_alive:
        return
    connections = len(host.process.transports)
    incarnation = host.process.incarnation
    lost_bytes = simulation.kill(host, power_loss=bool(strike.integer("power_loss")))

    def start() -> None:
        if not host.is_alive and host.process.incarnation == incarnation:
            simulation.restart(host)

    strike.bite(f"{lost_bytes} bytes and {connections} connections were lost")
    strike.lasting(start, strike.integer("after_ms"))


FAULT = FaultKind(
    name="restart",
    title="a process that dies and comes back",
    family=Family.PROCESS,
    strike=strike,
    params={"after_ms": 1000, "power_loss": False},
    draws={"after_ms": Between(20, 4000), "power_loss": OneOf((False, True))},
    spoils=Spoils.UNFLUSHED,
    spoils_if="power_loss",
)
