"""The frame that a fault of the protocol is about: the one that its trigger waited for, the answer to that, or the next one at a server.

A kind says whether it is about a request or an answer, and acts before the frame is handed to the network, when its fate can still be decided.
"""

from collections.abc import Callable, Sequence

from kraftsim.faults.fault import AT_THE_TRIGGER
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import FrameSeen

Act = Callable[[FrameSeen], bool]
"""What is done with a frame. Returns whether that was all; if not, the next one is tried."""
BEFORE = "before"
ANY_API = None
API_KEY = "api_key"
"""The parameter by which a fault names an API where its trigger names none; absent: any."""
ASKED_BY_SERVER = "asked_by_server"
"""The parameter by which a fault is about what the server of the trigger's frame asks others itself, because it was asked."""


def await_frame(strike: Strike, act: Act, *, is_response: bool, apis: Sequence[int] | None = ANY_API) -> None:
    """Act on the frame of the trigger or, where that is none of the wanted sort or was sent already, on the next that fits, until the fault is over.

    Without a frame as the trigger any frame of the wanted APIs fits that the target serves; with the parameter `asked_by_server`, that it asks for.
    """
    own = _own_frame(strike, apis)
    if own is not None and own.is_response == is_response and strike.is_before and act(own):
        return
    seen = strike.occasion.frame
    server = seen.server if seen is not None and strike.fault.target == AT_THE_TRIGGER else strike.target
    asks = ASKED_BY_SERVER in strike.fault.params and strike.flag(ASKED_BY_SERVER)

    def fits(frame: FrameSeen) -> bool:
        if own is None:
            return (frame.client if asks else frame.server) == server and (apis is None or frame.api_key in apis)
        if frame.is_response and not own.is_response:
            return frame.request is own
        return frame is not own and (frame.api_key, frame.server, frame.client) == (own.api_key, own.server, own.client)

    def look(frame: FrameSeen, moment: str) -> None:
        if moment == BEFORE and frame.is_response == is_response and fits(frame) and act(frame):
            end()

    end = strike.simulation.triggers.follow_frames(look)
    strike.finally_(end)


def apis_of(strike: Strike) -> tuple[int, ...] | None:
    """Return the API that a fault names by its parameter, or None for any."""
    api_key = strike.number_or_none(API_KEY)
    return None if api_key is None else (api_key,)


def _own_frame(strike: Strike, apis: Sequence[int] | None) -> FrameSeen | None:
    """Return the frame of the trigger, if the fault may be about it."""
    frame = strike.occasion.frame
    if frame is None or (apis is not None and frame.api_key not in apis):
        return None
    return frame if strike.fault.target in (AT_THE_TRIGGER, frame.server) else None
