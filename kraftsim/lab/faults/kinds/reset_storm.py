"""Connections are reset repeatedly for a while, one at a time at random: a client that reconnects
may be reset again in its first requests.

One reset (`cut-connection`) causes one retry; a storm also tests the retries, and the state that is
built up while connecting.
"""

import asyncio

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Reset a connection of the target after each of some random waits; it is effective when one is
    reset.
    """
    network = injection.simulation.network
    pairs = set(injection.directions())
    interval_ms = injection.integer("interval_ms")

    def reset_one() -> None:
        if injection.is_over:
            return
        open_ones = [
            ends
            for ends in network.connections.values()
            if (ends[0].process.host.name, ends[1].process.host.name) in pairs
            and not ends[0].is_lost
        ]
        if open_ones:
            network.reset_connections(injection.random.choice(open_ones))
            injection.record_effect("a connection was reset")
        injection.after(1 + int(injection.random.expovariate(1 / interval_ms)), reset_one)

    injection.lasting(lambda: None, injection.integer("duration_ms"))
    reset_one()


async def over_sockets(injection: SocketInjection) -> None:
    """Let the proxy reset a connection after each of some random waits."""

    async def storm() -> None:
        while True:
            effect = await injection.field.cut(injection.links(), only_one=True)
            if effect.closed:
                injection.record_effect("a connection was reset")
            await asyncio.sleep(
                (1 + injection.random.expovariate(1 / injection.integer("interval_ms"))) / 1000
            )

    await injection.before_it_ends(storm(), injection.integer("duration_ms"))


FAULT = FaultKind(
    name="reset-storm",
    title="repeated connection resets",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"interval_ms": 100, "duration_ms": 3000},
    aim=Aim.LINK,
    draws={"interval_ms": Between(2, 500), "duration_ms": Between(200, 4000)},
)
