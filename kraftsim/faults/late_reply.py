"""An answer comes after its client has given up waiting: it reaches a connection that is closed, or a client that has asked somebody else by now.

The answer and everything behind it on its connection wait until the client closes the connection, and are delivered then; a client that never gives
up gets them when the fault is over, which changes nothing, or, with `is_given_up` False, is what is wanted.
"""

import asyncio
from collections.abc import Callable

from kraftsim.faults.awaited_frame import apis_of, await_frame
from kraftsim.faults.fault import EVERYWHERE, Between, Family, FaultKind, OneOf
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.frame_over_sockets import held_frame
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import FrameSeen


def strike(strike: Strike) -> None:
    """Hold the target's next answer, or that to the request of the trigger, until its client gives up; it bites when the client does."""
    releases: list[Callable[[], None]] = []

    def act(frame: FrameSeen) -> bool:
        release = frame.hold()
        releases.append(release)

        def on_given_up(trouble: OSError | None) -> None:
            if trouble is None and not strike.is_over:
                strike.bite(f"the client gave up waiting for the answer to API {frame.api_key}")
            strike.after(strike.integer("after_ms"), release)

        frame.transport.peer.when_lost(on_given_up)
        return True

    def deliver() -> None:
        if releases and not strike.flag("is_given_up"):
            strike.bite("an answer came late")
        for release in releases:
            release()

    await_frame(strike, act, is_response=True, apis=apis_of(strike))
    strike.lasting(deliver, strike.integer("duration_ms"))


async def over_sockets(strike: FieldStrike) -> None:
    """Let the proxy hold the answer until the client closes the connection."""
    frame = await held_frame(strike, is_response=True)
    if frame is None:
        return
    await frame.send()
    if await strike.before_it_ends(frame.given_up(), strike.integer("duration_ms")):
        strike.bite(f"the client gave up waiting for the answer to API {frame.api_key}")
        await asyncio.sleep(strike.integer("after_ms") / 1000)
    elif not strike.flag("is_given_up"):
        strike.bite("an answer came late")


FAULT = FaultKind(
    name="late-reply",
    title="an answer that comes after the time-out",
    family=Family.PROTOCOL,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"api_key": None, "after_ms": 1, "is_given_up": True, "duration_ms": 60_000},
    strikes_on=("time", "frame", "event", "state"),
    draws={"after_ms": OneOf((0, 1, 50, 500)), "duration_ms": Between(2000, 60_000)},
)
