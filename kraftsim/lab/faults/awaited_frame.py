"""The frame that a protocol fault targets: the one that fired its trigger, the answer to that, or
the next one at a server.

A kind targets requests or answers, and acts before the frame is sent, when it can still be dropped,
delayed or changed.
"""

import asyncio
from collections.abc import Callable, Sequence

from kraftsim.lab.faults.fault import AT_THE_TRIGGER
from kraftsim.lab.faults.field import HeldFrame, SocketInjection, Watch
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.trigger import OnFrame
from kraftsim.world.simulated import FrameSeen

Act = Callable[[FrameSeen], bool]
"""Acts on a frame. Returns whether the fault is done; if not, the next frame is tried."""
BEFORE = "before"
ANY_API = None
API_KEY = "api_key"
"""The parameter that names an API where the trigger names none; absent: any."""
ASKED_BY_SERVER = "asked_by_server"
"""The parameter that makes a fault target the requests that the server of the trigger's frame sends
to other servers in turn.
"""


def await_frame(
    injection: Injection, act: Act, *, is_response: bool, apis: Sequence[int] | None = ANY_API
) -> None:
    """Act on the frame of the trigger or, if that is of another type or was sent already, on the
    next one that matches, until the fault is over.

    Without a frame as the trigger, any frame of the chosen APIs matches that the target serves;
    with the parameter `asked_by_server`, that it sends.
    """
    own = _own_frame(injection, apis)
    if own is not None and own.is_response == is_response and injection.is_before and act(own):
        return
    seen = injection.trigger_context.frame
    server = (
        seen.server
        if seen is not None and injection.fault.target == AT_THE_TRIGGER
        else injection.target
    )
    is_from_server = ASKED_BY_SERVER in injection.fault.params and injection.flag(ASKED_BY_SERVER)

    def fits(frame: FrameSeen) -> bool:
        if own is None:
            return (frame.client if is_from_server else frame.server) == server and (
                apis is None or frame.api_key in apis
            )
        if frame.is_response and not own.is_response:
            return frame.request is own
        return frame is not own and (frame.api_key, frame.server, frame.client) == (
            own.api_key,
            own.server,
            own.client,
        )

    def look(frame: FrameSeen, moment: str) -> None:
        if moment == BEFORE and frame.is_response == is_response and fits(frame) and act(frame):
            end()

    end = injection.simulation.triggers.follow_frames(look)
    injection.finally_(end)


def apis_of(injection: Injection) -> tuple[int, ...] | None:
    """Return the API of a fault's parameter, or None for any."""
    api_key = injection.number_or_none(API_KEY)
    return None if api_key is None else (api_key,)


def _own_frame(injection: Injection, apis: Sequence[int] | None) -> FrameSeen | None:
    """Return the frame of the trigger, if the fault may target it."""
    frame = injection.trigger_context.frame
    if frame is None or (apis is not None and frame.api_key not in apis):
        return None
    return frame if injection.fault.target in (AT_THE_TRIGGER, frame.server) else None


# --------------------------------------------------------------------------------------------------
# The frame that a protocol fault targets, over sockets: the one that fired its trigger, the
# answer to that, or the next one at a server
#
# The same rules as in simulation (`kraftsim.lab.faults.awaited_frame`); the proxy finds the frame
# and holds it.


async def held_frame(injection: SocketInjection, *, is_response: bool) -> HeldFrame | None:
    """Return the frame, held, and store it in the fault; None if the fault ended before one came.

    The trigger's frame passes if it is another one.
    """
    own, api_key = injection.frame, injection.number_or_none("api_key")
    trigger = injection.fault.trigger
    is_meant = (
        own is not None
        and api_key in (None, own.api_key)
        and injection.fault.target in (AT_THE_TRIGGER, own.server)
    )
    if own is None or not is_meant:
        server = (
            own.server
            if own is not None and injection.fault.target == AT_THE_TRIGGER
            else injection.target
        )
        is_from_server = ASKED_BY_SERVER in injection.fault.params and injection.flag(
            ASKED_BY_SERVER
        )
        watch = Watch(
            api_key=api_key,
            is_response=is_response,
            client=server if is_from_server else None,
            server=None if is_from_server else server,
        )
    elif (
        own.is_response == is_response
        and isinstance(trigger, OnFrame)
        and trigger.moment == "before"
    ):
        return own
    elif is_response:
        watch = Watch(
            is_response=True, connection=own.connection, correlation_id=own.correlation_id
        )
    else:
        watch = Watch(api_key=own.api_key, client=own.client, server=own.server)
    coming = asyncio.ensure_future(injection.field.next_frame(watch))
    await asyncio.sleep(0)  # the request to watch is sent before the one to release
    if own is not None:
        await own.let_pass()
    injection.frame = await injection.before_it_ends(coming, injection.integer("duration_ms"))
    return injection.frame
