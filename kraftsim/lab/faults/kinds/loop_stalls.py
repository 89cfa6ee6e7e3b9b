"""The event loop of a node stalls repeatedly for short times: garbage collections, synchronous
work, a starved machine.
"""

import asyncio

from kraftsim.lab.faults.fault import PROCESSES, SIM, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Pause the target's process for `stall_ms`, every `every_ms`; it is effective when callbacks
    have to wait.
    """
    simulation = injection.simulation
    host = simulation.host(injection.target)

    def stall() -> None:
        if injection.is_over:
            return
        stalled = simulation.pause(host)

        def go_on() -> None:
            waited = simulation.resume(host) if host.process is stalled else 0
            if waited:
                injection.record_effect(f"{waited} callbacks had to wait")

        injection.after(injection.integer("stall_ms"), go_on)
        injection.after(injection.integer("every_ms"), stall)

    stall()
    injection.lasting(lambda: None, injection.integer("duration_ms"))


async def over_sockets(injection: SocketInjection) -> None:
    """Send SIGSTOP and SIGCONT alternately; a single embedded node cannot be paused."""

    async def stall() -> None:
        while True:
            is_stalled = await injection.field.pause(injection.target)
            await asyncio.sleep(injection.integer("stall_ms") / 1000)
            if is_stalled and await injection.field.resume(injection.target):
                injection.record_effect("a node was paused")
            await asyncio.sleep(
                max(0, injection.integer("every_ms") - injection.integer("stall_ms")) / 1000
            )

    try:
        await injection.before_it_ends(stall(), injection.integer("duration_ms"))
    finally:
        await injection.field.resume(injection.target)


FAULT = FaultKind(
    name="loop-stalls",
    title="an event loop that stalls repeatedly",
    family=Family.PROCESS,
    inject=inject,
    over_sockets=over_sockets,
    modes=(SIM, PROCESSES),
    triggers_on=("time", "event"),
    params={"stall_ms": 200, "every_ms": 400, "duration_ms": 5000},
    draws={
        "stall_ms": OneOf((20, 100, 400)),
        "every_ms": OneOf((500, 900)),
        "duration_ms": Between(1000, 6000),
    },
)
