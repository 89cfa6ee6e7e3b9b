"""The frame that a fault of the protocol is about, over sockets: the one of its trigger, the answer to that, or the next one at a server.

The same rules as in simulation (`kraftsim.faults.awaited_frame`); the proxy finds the frame and holds it.
"""

import asyncio

from kraftsim.faults.awaited_frame import ASKED_BY_SERVER
from kraftsim.faults.field import AT_THE_TRIGGER, FieldStrike, HeldFrame, Watch
from kraftsim.faults.trigger import OnFrame


async def held_frame(strike: FieldStrike, *, is_response: bool) -> HeldFrame | None:
    """Return the frame, held, and make it the strike's own; None if the fault ended before one came. If it is another, that of the trigger passes."""
    own, api_key = strike.frame, strike.number_or_none("api_key")
    trigger = strike.fault.trigger
    is_meant = own is not None and api_key in (None, own.api_key) and strike.fault.target in (AT_THE_TRIGGER, own.server)
    if own is None or not is_meant:
        server = own.server if own is not None and strike.fault.target == AT_THE_TRIGGER else strike.target
        asks = ASKED_BY_SERVER in strike.fault.params and strike.flag(ASKED_BY_SERVER)
        watch = Watch(api_key=api_key, is_response=is_response, client=server if asks else None, server=None if asks else server)
    elif own.is_response == is_response and isinstance(trigger, OnFrame) and trigger.moment == "before":
        return own
    elif is_response:
        watch = Watch(is_response=True, connection=own.connection, correlation_id=own.correlation_id)
    else:
        watch = Watch(api_key=own.api_key, client=own.client, server=own.server)
    coming = asyncio.ensure_future(strike.field.next_frame(watch))
    await asyncio.sleep(0)  # the order to watch goes out before the one to let pass
    if own is not None:
        await own.let_pass()
    strike.frame = await strike.before_it_ends(coming, strike.integer("duration_ms"))
    return strike.frame
