"""A request is done twice: its bytes come again on a new connection of the same client, as after a retry, and that second answer is thrown away.

It need not be a retry that a client of ours would make: a server must survive what the network may do to it. What a repeated request does is decided
by sequence numbers, epochs and incarnation ids, or by nothing at all. Source: KIP-98 (duplicates), KAFKA-9144.
"""

from kraftsim.faults.awaited_frame import apis_of, await_frame
from kraftsim.faults.fault import EVERYWHERE, Between, Family, FaultKind, OneOf
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.frame_over_sockets import held_frame
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import FrameSeen


def strike(strike: Strike) -> None:
    """Repeat the request of the trigger, or the target's next one; it bites when the server answers the copy, or any of the copies."""
    simulation = strike.simulation

    def act(frame: FrameSeen) -> bool:
        client = simulation.host(frame.client)
        address, port = frame.transport.remote

        def on_answer(size_bytes: int) -> None:
            strike.bite(f"a second request of API {frame.api_key} was answered with {size_bytes} bytes")

        def keep(data: bytes) -> bytes:
            for number in range(strike.integer("times")):
                strike.after(strike.integer("after_ms") * (number + 1), lambda: simulation.network.say_again(client, address, port, data, on_answer))
            return data

        frame.rewrite(keep)
        return True

    await_frame(strike, act, is_response=False, apis=apis_of(strike))
    strike.lasting(lambda: None, strike.integer("duration_ms"))


async def over_sockets(strike: FieldStrike) -> None:
    """Let the proxy send the request that it holds again, on connections of its own."""
    frame = await held_frame(strike, is_response=False)
    if frame is None:
        return
    for number in range(strike.integer("times")):
        await frame.repeat(strike.integer("after_ms") * (number + 1))
    await frame.let_pass()
    size_bytes = await strike.before_it_ends(frame.copy_answered(), strike.integer("duration_ms"))
    if size_bytes:
        strike.bite(f"a second request of API {frame.api_key} was answered with {size_bytes} bytes")


FAULT = FaultKind(
    name="duplicate-request",
    title="a request that comes twice",
    family=Family.PROTOCOL,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"api_key": None, "after_ms": 1, "times": 1, "duration_ms": 10_000},
    strikes_on=("time", "frame", "event", "state"),
    draws={"after_ms": OneOf((0, 1, 10, 200, 2000)), "times": OneOf((1, 1, 3)), "duration_ms": Between(500, 8000)},
)
