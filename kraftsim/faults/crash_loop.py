"""A process is killed and started several times in a row, each time before it has got far: a supervisor that does not give up."""

from kraftsim.faults.fault import EVERYWHERE, Between, Family, FaultKind, OneOf, Spoils
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Kill the target `times` times, `up_ms` after each start; it bites when a process dies that had come up."""
    simulation = strike.simulation
    host = simulation.host(strike.target)

    def crash(left: int) -> None:
        if strike.is_over:
            return
        if host.is_alive:
            connections = len(host.process.transports)
            simulation.kill(host, power_loss=bool(strike.integer("power_loss")))
            strike.bite(f"{connections} connections were lost")
            strike.start_later(host, strike.integer("down_ms"))
        if left > 1:
            strike.after(strike.integer("down_ms") + strike.integer("up_ms"), lambda: crash(left - 1))

    crash(strike.integer("times"))


async def over_sockets(strike: FieldStrike) -> None:
    """Send SIGKILL again and again; a loss of power is only a kill here."""
    for _ in range(strike.integer("times")):
        if strike.is_over:
            return
        if await strike.field.kill(strike.target):
            strike.bite("a node went down")
        await strike.lasts(strike.integer("down_ms"))
        await strike.field.restart(strike.target)
        await strike.lasts(strike.integer("up_ms"))


FAULT = FaultKind(
    name="crash-loop",
    title="a process that dies again and again",
    family=Family.PROCESS,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"times": 4, "up_ms": 300, "down_ms": 100, "power_loss": False},
    draws={"times": Between(2, 6), "up_ms": OneOf((1, 5, 30, 300, 1000)), "down_ms": Between(10, 500), "power_loss": OneOf((False, True))},
    spoils=Spoils.UNFLUSHED,
    spoils_if="power_loss",
)
