"""A process stands still for a while, as in a long garbage collection: its peers hear nothing, and all that waited happens at once afterwards."""

from kraftsim.faults.fault import PROCESSES, SIM, Between, Family, FaultKind
from kraftsim.faults.field import FieldStrike
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


async def over_sockets(strike: FieldStrike) -> None:
    """Send SIGSTOP, and SIGCONT later; nodes of one process cannot stand still by themselves."""
    if not await strike.field.pause(strike.target):
        return
    await strike.lasts(strike.integer("duration_ms"))
    if await strike.field.resume(strike.target):
        strike.bite("a node stood still")


FAULT = FaultKind(
    name="pause",
    title="a process that stands still",
    family=Family.PROCESS,
    strike=strike,
    over_sockets=over_sockets,
    modes=(SIM, PROCESSES),
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(100, 6000)},
)
