"""A half-open connection: one end is gone without closing it, and bytes that the other end sends
get no response.

A middlebox that dropped the connection's state has this effect, or a keepalive that failed on one
side only. The open end notices when its request times out, or when TCP gives up; once the fault is
over, a keepalive probe is answered with a reset.
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection

CONNECTED, ACCEPTED, ANY = "connected", "accepted", "any"


def inject(injection: Injection) -> None:
    """Make each connection of the target half-open; it is effective when bytes are discarded."""
    network = injection.simulation.network
    pairs = set(injection.directions())
    believer = injection.text("believer")
    pipes = []
    for connecting, accepting in list(network.connections.values()):
        if (
            (connecting.process.host.name, accepting.process.host.name) not in pairs
            or connecting.is_lost
            or accepting.is_lost
        ):
            continue
        is_believer_connecting = believer == CONNECTED or (
            believer == ANY and injection.random.random() < 0.5
        )
        believing, gone = (
            (connecting, accepting) if is_believer_connecting else (accepting, connecting)
        )
        believing.out.lead_nowhere(injection.record_effect)
        gone.forget()
        pipes.append(believing.out)

    def answer_with_reset() -> None:
        for pipe in pipes:
            pipe.end_nowhere()

    injection.lasting(answer_with_reset, injection.integer("duration_ms"))


async def over_sockets(injection: SocketInjection) -> None:
    """Let the proxy reset one end of each connection, and discard the bytes of the other."""
    number = await injection.field.halve(
        injection.links(), believer=injection.text("believer") or ANY
    )
    try:
        await injection.lasts(injection.integer("duration_ms"))
    finally:
        effect = await injection.field.lift(number)
    if effect.touched_bytes:
        injection.record_effect(
            f"{effect.touched_bytes} bytes were discarded on {effect.connections} connections"
        )


FAULT = FaultKind(
    name="half-open",
    title="a half-open connection",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"believer": ANY, "duration_ms": 10_000},
    aim=Aim.LINK,
    draws={"believer": OneOf((CONNECTED, ACCEPTED, ANY)), "duration_ms": Between(500, 10_000)},
)
