"""A process dies and comes back, and its peers do not hear of it: a firewall that forgot their connections swallows what they go on sending there.

They believe to be connected to a node that has already a new incarnation, until a time-out of their own tells them.
"""

from kraftsim.faults.fault import EVERYWHERE, Between, Family, FaultKind
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Kill the target's process, let nobody be told, and start it again; it bites when a peer sends something to nobody."""
    simulation = strike.simulation
    host = simulation.host(strike.target)
    if not host.is_alive:
        return
    towards = []
    for ends in simulation.network.between(host.name, None):
        for end in ends:
            if end.process.host is host:
                end.out.lead_nowhere(lambda effect: None)
            else:
                end.out.lead_nowhere(strike.bite)
                towards.append(end.out)
    simulation.kill(host)
    strike.start_later(host, strike.integer("after_ms"))

    def tell() -> None:
        for pipe in towards:
            pipe.end_nowhere()

    strike.lasting(tell, strike.integer("duration_ms"))


async def over_sockets(strike: FieldStrike) -> None:
    """Let the proxy keep the peers in their belief, and kill the node; it bites when a peer sends something to nobody."""
    node = strike.target
    if strike.field.is_down(node):
        return
    number = await strike.field.halve(strike.links(), gone=node)
    try:
        await strike.field.kill(node)
        await strike.lasts(strike.integer("after_ms"))
        await strike.field.restart(node)
        await strike.lasts(max(1, strike.integer("duration_ms") - strike.integer("after_ms")))
    finally:
        effect = await strike.field.lift(number)
    if effect.touched_bytes:
        strike.bite(f"{effect.touched_bytes} bytes went nowhere on {effect.connections} connections")


FAULT = FaultKind(
    name="half-open-restart",
    title="a restart that the peers do not hear of",
    family=Family.PROCESS,
    strike=strike,
    over_sockets=over_sockets,
    through_proxy=True,
    modes=EVERYWHERE,
    params={"after_ms": 50, "duration_ms": 5000},
    draws={"after_ms": Between(5, 1000), "duration_ms": Between(500, 8000)},
)
