"""The event loop of a node stands still again and again, each time for a moment: garbage collections, synchronous work, a starved machine."""

import asyncio

from kraftsim.faults.fault import PROCESSES, SIM, Between, Family, FaultKind, OneOf
from kraftsim.faults.field import FieldStrike
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


async def over_sockets(strike: FieldStrike) -> None:
    """Send SIGSTOP and SIGCONT in turn; nodes of one process cannot stand still by themselves."""

    async def stall() -> None:
        while True:
            is_stalled = await strike.field.pause(strike.target)
            await asyncio.sleep(strike.integer("stall_ms") / 1000)
            if is_stalled and await strike.field.resume(strike.target):
                strike.bite("a node stood still")
            await asyncio.sleep(max(0, strike.integer("every_ms") - strike.integer("stall_ms")) / 1000)

    try:
        await strike.before_it_ends(stall(), strike.integer("duration_ms"))
    finally:
        await strike.field.resume(strike.target)


FAULT = FaultKind(
    name="loop-stalls",
    title="an event loop that stalls again and again",
    family=Family.PROCESS,
    strike=strike,
    over_sockets=over_sockets,
    modes=(SIM, PROCESSES),
    strikes_on=("time", "event"),
    params={"stall_ms": 200, "every_ms": 400, "duration_ms": 5000},
    draws={"stall_ms": OneOf((20, 100, 400)), "every_ms": OneOf((500, 900)), "duration_ms": Between(1000, 6000)},
)
