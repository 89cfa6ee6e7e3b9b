"""A process stands still until its place is taken, and goes on as if nothing had happened: a leader, or a broker, of yesterday.

Another controller is elected, or the broker is fenced; only then does it wake up, with everything that it was about to do.
"""

import asyncio

from kraftsim.faults.fault import PROCESSES, SIM, Between, Family, FaultKind
from kraftsim.faults.field import FieldStrike
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


async def over_sockets(strike: FieldStrike) -> None:
    """Send SIGSTOP, and SIGCONT once others lead, or hold the broker for dead."""
    if not await strike.field.pause(strike.target):
        return

    async def replaced() -> bool:
        await strike.field.until_replaced(strike.target)
        return True

    try:
        if await strike.before_it_ends(replaced(), strike.integer("duration_ms")):
            strike.bite("its place was taken while it stood still")
            await asyncio.sleep(strike.integer("after_ms") / 1000)
    finally:
        await strike.field.resume(strike.target)


FAULT = FaultKind(
    name="zombie",
    title="a process that wakes up when its place is taken",
    family=Family.PROCESS,
    strike=strike,
    over_sockets=over_sockets,
    modes=(SIM, PROCESSES),
    params={"after_ms": 0, "duration_ms": 20_000},
    draws={"after_ms": Between(0, 500), "duration_ms": Between(3000, 8000)},
)
