"""A process is killed, or its host loses power, and it is started again after a while on what is left of its disk."""

from kraftsim.faults.fault import EVERYWHERE, Between, Family, FaultKind, OneOf, Spoils
from kraftsim.faults.field import FieldStrike
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


async def over_sockets(strike: FieldStrike) -> None:
    """Send SIGKILL and start the node again; what the operating system was given stays, so a loss of power is only a kill here."""
    if not await strike.field.kill(strike.target):
        return
    strike.bite("a node went down")
    await strike.lasts(strike.integer("after_ms"))
    await strike.field.restart(strike.target)


FAULT = FaultKind(
    name="restart",
    title="a process that dies and comes back",
    family=Family.PROCESS,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"after_ms": 1000, "power_loss": False},
    draws={"after_ms": Between(20, 4000), "power_loss": OneOf((False, True))},
    spoils=Spoils.UNFLUSHED,
    spoils_if="power_loss",
)
