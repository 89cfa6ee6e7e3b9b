"""Connections are reset in mid stream. With a frame as the trigger, only its connection, after a given number of the frame's bytes."""

from kraftsim.faults.fault import Aim, Family, FaultKind, OneOf
from kraftsim.faults.strike import Strike

NOT_BEFORE_THE_END = 1 << 40


def strike(strike: Strike) -> None:
    """Cut the connection of the frame that is being sent, or all connections of the target."""
    frame = strike.occasion.frame
    after_bytes = strike.integer("after_bytes")
    if frame is not None:
        frame.cut(NOT_BEFORE_THE_END if after_bytes < 0 else after_bytes)
        strike.bite(
            f"a frame of {frame.size_bytes} bytes was cut after {frame.size_bytes if after_bytes < 0 else min(after_bytes, frame.size_bytes)}"
        )
        return
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in strike.directions())
    busy = sum(strike.simulation.network.cut(one, other) for one, other in pairs)
    if busy:
        strike.bite(f"{busy} connections had bytes under way")


FAULT = FaultKind(
    name="cut-connection",
    title="a connection that breaks",
    family=Family.NETWORK,
    strike=strike,
    params={"after_bytes": 0},
    aim=Aim.LINK,
    draws={"after_bytes": OneOf((-1, 0, 1, 3, 4, 20))},
)
