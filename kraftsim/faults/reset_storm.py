"""Connections are reset again and again for a while, one drawn at a time: whoever connects anew is cut again, in the middle of what it says first.

One cut (`cut-connection`) is answered by one retry; a storm shows what becomes of the retries, and of a state that is built up while connecting.
"""

import asyncio

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Reset a connection of the target after each of some random waits; it bites when one is reset."""
    network = strike.simulation.network
    pairs = set(strike.directions())
    interval_ms = strike.integer("interval_ms")

    def reset_one() -> None:
        if strike.is_over:
            return
        open_ones = [
            ends for ends in network.connections.values() if (ends[0].process.host.name, ends[1].process.host.name) in pairs and not ends[0].is_lost
        ]
        if open_ones:
            network.cut_ends(strike.random.choice(open_ones))
            strike.bite("a connection was reset")
        strike.after(1 + int(strike.random.expovariate(1 / interval_ms)), reset_one)

    strike.lasting(lambda: None, strike.integer("duration_ms"))
    reset_one()


async def over_sockets(strike: FieldStrike) -> None:
    """Let the proxy reset a connection after each of some random waits."""

    async def storm() -> None:
        while True:
            effect = await strike.field.cut(strike.links(), only_one=True)
            if effect.closed:
                strike.bite("a connection was reset")
            await asyncio.sleep((1 + strike.random.expovariate(1 / strike.integer("interval_ms"))) / 1000)

    await strike.before_it_ends(storm(), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="reset-storm",
    title="connections that break again and again",
    family=Family.NETWORK,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"interval_ms": 100, "duration_ms": 3000},
    aim=Aim.LINK,
    draws={"interval_ms": Between(2, 500), "duration_ms": Between(200, 4000)},
)
