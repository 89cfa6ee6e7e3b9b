"""A request is processed, and its connection is reset before a byte of the answer arrives: the
client cannot know whether it took effect.

The case for which idempotent producers and retries of AllocateProducerIds were designed. Source:
KIP-98, KIP-730.
"""

from kraftsim.lab.faults.awaited_frame import apis_of, await_frame, held_frame
from kraftsim.lab.faults.fault import EVERYWHERE, Between, Family, FaultKind
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import FrameSeen


def inject(injection: Injection) -> None:
    """Reset the connection in place of the target's next answer, or of that to the request of the
    trigger; it is effective at that moment.
    """

    def act(frame: FrameSeen) -> bool:
        frame.cut(0)
        injection.record_effect(f"the answer to API {frame.api_key} was lost with its connection")
        return True

    await_frame(injection, act, is_response=True, apis=apis_of(injection))
    injection.lasting(lambda: None, injection.integer("duration_ms"))


async def over_sockets(injection: SocketInjection) -> None:
    """The same for an answer that the proxy holds."""
    frame = await held_frame(injection, is_response=True)
    if frame is not None:
        await frame.cut(0)
        injection.record_effect(f"the answer to API {frame.api_key} was lost with its connection")


FAULT = FaultKind(
    name="lost-reply",
    title="a processed request with a lost answer",
    family=Family.PROTOCOL,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"api_key": None, "duration_ms": 10_000},
    triggers_on=("time", "frame", "event", "state"),
    draws={"duration_ms": Between(500, 8000)},
)
