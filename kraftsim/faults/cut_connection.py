"""Connections are reset in mid stream. With a frame as the trigger, only its connection, after a given number of the frame's bytes.

That number may be any from 0 (nothing of the frame arrives) to the frame's size (all of it arrives, and the connection is lost); -1 means its size.
Once a frame was sent, what of it is still on its way is lost.
"""

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Cut the connection of the frame that is being sent, or all connections of the target."""
    network = strike.simulation.network
    frame = strike.occasion.frame
    if frame is not None and strike.is_before:
        after_bytes = strike.integer("after_bytes")
        frame.cut(frame.size_bytes if after_bytes < 0 else after_bytes)
        strike.bite(f"a frame of {frame.size_bytes} bytes was cut after {frame.cut_after}")
        return
    if frame is not None:
        ends = network.connections.get(frame.transport.number)
        if ends is not None:
            network.cut_ends(ends)
            strike.bite("a connection was cut that a frame was just given to")
        return
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in strike.directions())
    cut = [ends for one, other in pairs for ends in network.between(one, other)]
    busy = sum(ends[0].is_busy for ends in cut)
    for ends in cut:
        network.cut_ends(ends)
    if cut:
        strike.bite(f"{len(cut)} connections were reset, {busy} of them with bytes under way")


async def over_sockets(strike: FieldStrike) -> None:
    """Let the proxy cut the frame that it holds, or reset all connections of the target."""
    frame, after_bytes = strike.frame, strike.integer("after_bytes")
    if frame is None:
        effect = await strike.field.cut(strike.links())
        if effect.connections:
            strike.bite(f"{effect.connections} of {effect.closed} connections had something under way")
        return
    passing_bytes = frame.size_bytes if after_bytes < 0 else min(after_bytes, frame.size_bytes)
    await frame.cut(passing_bytes)
    strike.bite(f"a frame of {frame.size_bytes} bytes was cut after {passing_bytes}")


FAULT = FaultKind(
    name="cut-connection",
    title="a connection that breaks",
    family=Family.NETWORK,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"after_bytes": 0},
    aim=Aim.LINK,
    draws={"after_bytes": Between(-1, 160)},
)
