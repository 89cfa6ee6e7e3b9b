"""A request is done, and its connection breaks before a byte of the answer arrives: whoever asked cannot know whether it was done.

The moment for which idempotent producers, producer ids and retries of AllocateProducerIds were made. Source: KIP-98, KIP-730.
"""

from kraftsim.faults.awaited_frame import apis_of, await_frame
from kraftsim.faults.fault import EVERYWHERE, Between, Family, FaultKind
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.frame_over_sockets import held_frame
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import FrameSeen


def strike(strike: Strike) -> None:
    """Cut the connection instead of the target's next answer, or of that to the request of the trigger; it bites when the answer would have gone."""

    def act(frame: FrameSeen) -> bool:
        frame.cut(0)
        strike.bite(f"the answer to API {frame.api_key} was lost with its connection")
        return True

    await_frame(strike, act, is_response=True, apis=apis_of(strike))
    strike.lasting(lambda: None, strike.integer("duration_ms"))


async def over_sockets(strike: FieldStrike) -> None:
    """The same, with an answer that the proxy holds."""
    frame = await held_frame(strike, is_response=True)
    if frame is not None:
        await frame.cut(0)
        strike.bite(f"the answer to API {frame.api_key} was lost with its connection")


FAULT = FaultKind(
    name="lost-reply",
    title="a request that is done, and an answer that is lost",
    family=Family.PROTOCOL,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"api_key": None, "duration_ms": 10_000},
    strikes_on=("time", "frame", "event", "state"),
    draws={"duration_ms": Between(500, 8000)},
)
