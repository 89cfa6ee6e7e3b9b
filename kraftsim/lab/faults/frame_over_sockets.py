"""The frame that a protocol fault targets, over sockets: the one that fired its trigger, the answer
to that, or the next one at a server.

The same rules as in simulation (`kraftsim.lab.faults.awaited_frame`); the proxy finds the frame and
holds it.
"""

import asyncio

from kraftsim.lab.faults.awaited_frame import ASKED_BY_SERVER
from kraftsim.lab.faults.field import AT_THE_TRIGGER, HeldFrame, SocketInjection, Watch
from kraftsim.lab.faults.trigger import OnFrame


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
