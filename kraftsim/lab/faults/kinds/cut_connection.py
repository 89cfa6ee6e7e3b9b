"""Connections are reset in the middle of the stream.

With a frame as the trigger, only its connection, after a given number of the frame's bytes.

The number is from 0 (nothing of the frame arrives) to the frame's size (all of it arrives, and the
connection is lost); -1 means its size. If the frame was sent already, the part of it that is in
flight is lost.
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Reset the connection of the frame that is being sent, or all connections of the target."""
    network = injection.simulation.network
    frame = injection.trigger_context.frame
    if frame is not None and injection.is_before:
        after_bytes = injection.integer("after_bytes")
        frame.cut(frame.size_bytes if after_bytes < 0 else after_bytes)
        injection.record_effect(
            f"a frame of {frame.size_bytes} bytes was truncated after {frame.cut_after}"
        )
        return
    if frame is not None:
        ends = network.connections.get(frame.transport.number)
        if ends is not None:
            network.reset_connections(ends)
            injection.record_effect("a connection was reset right after a frame was written to it")
        return
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in injection.directions())
    reset = [ends for one, other in pairs for ends in network.between(one, other)]
    busy = sum(ends[0].is_busy for ends in reset)
    for ends in reset:
        network.reset_connections(ends)
    if reset:
        injection.record_effect(
            f"{len(reset)} connections were reset, {busy} of them with bytes in flight"
        )


async def over_sockets(injection: SocketInjection) -> None:
    """Let the proxy truncate the frame that it holds and reset its connection, or reset all
    connections of the target.
    """
    frame, after_bytes = injection.frame, injection.integer("after_bytes")
    if frame is None:
        effect = await injection.field.cut(injection.links())
        if effect.connections:
            injection.record_effect(
                f"{effect.connections} of {effect.closed} connections had bytes in flight"
            )
        return
    passing_bytes = frame.size_bytes if after_bytes < 0 else min(after_bytes, frame.size_bytes)
    await frame.cut(passing_bytes)
    injection.record_effect(
        f"a frame of {frame.size_bytes} bytes was truncated after {passing_bytes}"
    )


FAULT = FaultKind(
    name="cut-connection",
    title="a connection reset",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"after_bytes": 0},
    aim=Aim.LINK,
    draws={"after_bytes": Between(-1, 160)},
)
