"""A node is stopped cleanly, as with SIGTERM, and restarted: it does a controlled shutdown,
flushes, and writes its clean-shutdown marker.

A node that takes longer than `kill_after_ms` is killed, as supervisors do.
"""

import asyncio

from kraftsim.lab.faults.fault import EVERYWHERE, Between, Family, FaultKind
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Stop the target, and start it again after it has ended; it is effective when it was up."""
    simulation = injection.simulation
    host = simulation.host(injection.target)
    process = host.process
    if not process.is_alive:
        return

    def end(how: str) -> None:
        if host.process is process and process.is_alive:
            simulation.kill(host)
            injection.record_effect(f"the node {how}")
            injection.start_later(host, injection.integer("after_ms"))

    def on_stopped(stopping: "asyncio.Task[object]") -> None:
        error = None if stopping.cancelled() else stopping.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        injection.after(
            0, lambda: end("stopped cleanly" if error is None else f"did not stop cleanly: {error}")
        )

    stopping = simulation.stop(host)
    if stopping is None:
        end("was starting, and ended at once")
    else:
        stopping.add_done_callback(on_stopped, context=simulation.harness.process.context)
        injection.after(
            injection.integer("kill_after_ms"), lambda: end("took too long to stop, and was killed")
        )


async def over_sockets(injection: SocketInjection) -> None:
    """Send SIGTERM, and start the node again; one that takes too long is killed."""
    if not await injection.field.stop(
        injection.target, kill_after_ms=injection.integer("kill_after_ms")
    ):
        return
    injection.record_effect("the node stopped")
    await injection.lasts(injection.integer("after_ms"))
    await injection.field.restart(injection.target)


FAULT = FaultKind(
    name="stop",
    title="a clean restart of a node",
    family=Family.PROCESS,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"after_ms": 1000, "kill_after_ms": 10_000},
    draws={"after_ms": Between(20, 4000), "kill_after_ms": Between(1000, 10_000)},
)
