"""An answer arrives after its client's request has timed out: on a closed connection, or at a
client that has retried elsewhere by now.

The answer and everything behind it on its connection wait until the client closes the connection,
and are delivered then; a client that does not time out gets them when the fault is over, which is
not effective unless `is_given_up` is False.
"""

import asyncio
from collections.abc import Callable

from kraftsim.lab.faults.awaited_frame import apis_of, await_frame, held_frame
from kraftsim.lab.faults.fault import EVERYWHERE, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import FrameSeen


def inject(injection: Injection) -> None:
    """Hold the target's next answer, or that to the request of the trigger, until its client gives
    up; it is effective when the client does.
    """
    releases: list[Callable[[], None]] = []

    def act(frame: FrameSeen) -> bool:
        release = frame.hold()
        releases.append(release)

        def on_given_up(error: OSError | None) -> None:
            if error is None and not injection.is_over:
                injection.record_effect(
                    f"the client gave up waiting for the answer to API {frame.api_key}"
                )
            injection.after(injection.integer("after_ms"), release)

        frame.transport.peer.when_lost(on_given_up)
        return True

    def deliver() -> None:
        if releases and not injection.flag("is_given_up"):
            injection.record_effect("an answer came late")
        for release in releases:
            release()

    await_frame(injection, act, is_response=True, apis=apis_of(injection))
    injection.lasting(deliver, injection.integer("duration_ms"))


async def over_sockets(injection: SocketInjection) -> None:
    """Let the proxy hold the answer until the client closes the connection."""
    frame = await held_frame(injection, is_response=True)
    if frame is None:
        return
    await frame.send()
    if await injection.before_it_ends(frame.given_up(), injection.integer("duration_ms")):
        injection.record_effect(f"the client gave up waiting for the answer to API {frame.api_key}")
        await asyncio.sleep(injection.integer("after_ms") / 1000)
    elif not injection.flag("is_given_up"):
        injection.record_effect("an answer came late")


FAULT = FaultKind(
    name="late-reply",
    title="an answer after the request time-out",
    family=Family.PROTOCOL,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"api_key": None, "after_ms": 1, "is_given_up": True, "duration_ms": 60_000},
    triggers_on=("time", "frame", "event", "state"),
    draws={"after_ms": OneOf((0, 1, 50, 500)), "duration_ms": Between(2000, 60_000)},
)
