"""A request is processed twice: its bytes are sent again on a new connection of the same client, as
after a retry, and that answer is discarded.

The retry need not be one that kraftsim's clients make: a server must handle whatever the network
delivers. The effect of a repeated request depends on sequence numbers, epochs and incarnation ids,
or on nothing at all. Source: KIP-98 (duplicates), KAFKA-9144.
"""

from kraftsim.lab.faults.awaited_frame import apis_of, await_frame, held_frame
from kraftsim.lab.faults.fault import EVERYWHERE, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import FrameSeen


def inject(injection: Injection) -> None:
    """Repeat the request of the trigger, or the target's next one; it is effective when the server
    answers a copy.
    """
    simulation = injection.simulation

    def act(frame: FrameSeen) -> bool:
        client = simulation.host(frame.client)
        address, port = frame.transport.remote

        def on_answer(size_bytes: int) -> None:
            injection.record_effect(
                f"a second request of API {frame.api_key} was answered with {size_bytes} bytes"
            )

        def keep(data: bytes) -> bytes:
            for number in range(injection.integer("times")):
                injection.after(
                    injection.integer("after_ms") * (number + 1),
                    lambda: simulation.network.resend(client, address, port, data, on_answer),
                )
            return data

        frame.rewrite(keep)
        return True

    await_frame(injection, act, is_response=False, apis=apis_of(injection))
    injection.lasting(lambda: None, injection.integer("duration_ms"))


async def over_sockets(injection: SocketInjection) -> None:
    """Let the proxy send copies of the held request on new connections."""
    frame = await held_frame(injection, is_response=False)
    if frame is None:
        return
    for number in range(injection.integer("times")):
        await frame.repeat(injection.integer("after_ms") * (number + 1))
    await frame.let_pass()
    size_bytes = await injection.before_it_ends(
        frame.copy_answered(), injection.integer("duration_ms")
    )
    if size_bytes:
        injection.record_effect(
            f"a second request of API {frame.api_key} was answered with {size_bytes} bytes"
        )


FAULT = FaultKind(
    name="duplicate-request",
    title="a duplicate request",
    family=Family.PROTOCOL,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"api_key": None, "after_ms": 1, "times": 1, "duration_ms": 10_000},
    triggers_on=("time", "frame", "event", "state"),
    draws={
        "after_ms": OneOf((0, 1, 10, 200, 2000)),
        "times": OneOf((1, 1, 3)),
        "duration_ms": Between(500, 8000),
    },
)
