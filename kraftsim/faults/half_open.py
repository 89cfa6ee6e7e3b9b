"""A connection that only one end believes in: the other end is gone without a word, and what is said to it is answered by nobody.

So it looks to a peer behind a middle box that forgot the connection, or after a keepalive failed on one side only. The believing end notices when its
request times out, or when TCP gives up; once the fault is over, a probe of its kernel is answered with a reset.
"""

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind, OneOf
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.strike import Strike

CONNECTED, ACCEPTED, ANY = "connected", "accepted", "any"


def strike(strike: Strike) -> None:
    """Let one end of each connection of the target be lost without the other knowing; it bites when bytes go nowhere."""
    network = strike.simulation.network
    pairs = set(strike.directions())
    believer = strike.text("believer")
    pipes = []
    for connecting, accepting in list(network.connections.values()):
        if (connecting.process.host.name, accepting.process.host.name) not in pairs or connecting.is_lost or accepting.is_lost:
            continue
        is_believer_connecting = believer == CONNECTED or (believer == ANY and strike.random.random() < 0.5)
        believing, gone = (connecting, accepting) if is_believer_connecting else (accepting, connecting)
        believing.out.lead_nowhere(strike.bite)
        gone.forget()
        pipes.append(believing.out)

    def answer_again() -> None:
        for pipe in pipes:
            pipe.end_nowhere()

    strike.lasting(answer_again, strike.integer("duration_ms"))


async def over_sockets(strike: FieldStrike) -> None:
    """Let the proxy reset one end of each connection, and swallow what the other says."""
    number = await strike.field.halve(strike.links(), believer=strike.text("believer") or ANY)
    try:
        await strike.lasts(strike.integer("duration_ms"))
    finally:
        effect = await strike.field.lift(number)
    if effect.touched_bytes:
        strike.bite(f"{effect.touched_bytes} bytes went nowhere on {effect.connections} connections")


FAULT = FaultKind(
    name="half-open",
    title="a connection that only one end believes in",
    family=Family.NETWORK,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"believer": ANY, "duration_ms": 10_000},
    aim=Aim.LINK,
    draws={"believer": OneOf((CONNECTED, ACCEPTED, ANY)), "duration_ms": Between(500, 10_000)},
)
