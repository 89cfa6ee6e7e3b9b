"""A node is asked to end in good order, as SIGTERM does, and is started again: it hands over, flushes, and leaves the mark of a clean stop.

Whoever takes longer than `kill_after_ms` is killed, as supervisors do.
"""

import asyncio

from kraftsim.faults.fault import EVERYWHERE, Between, Family, FaultKind
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Stop the target, and start it again after it has ended; it bites when it was up."""
    simulation = strike.simulation
    host = simulation.host(strike.target)
    process = host.process
    if not process.is_alive:
        return

    def end(how: str) -> None:
        if host.process is process and process.is_alive:
            simulation.kill(host)
            strike.bite(f"the node {how}")
            strike.start_later(host, strike.integer("after_ms"))

    def on_stopped(stopping: "asyncio.Task[object]") -> None:
        mistake = None if stopping.cancelled() else stopping.exception()
        if mistake is not None and not isinstance(mistake, OSError):
            raise mistake
        strike.after(0, lambda: end("stopped in good order" if mistake is None else f"did not stop in good order: {mistake}"))

    stopping = simulation.stop(host)
    if stopping is None:
        end("was coming up, and ended at once")
    else:
        stopping.add_done_callback(on_stopped, context=simulation.harness.process.context)
        strike.after(strike.integer("kill_after_ms"), lambda: end("took too long to stop, and was killed"))


async def over_sockets(strike: FieldStrike) -> None:
    """Send SIGTERM, and start the node again; one that takes too long is killed."""
    if not await strike.field.stop(strike.target, kill_after_ms=strike.integer("kill_after_ms")):
        return
    strike.bite("the node stopped")
    await strike.lasts(strike.integer("after_ms"))
    await strike.field.restart(strike.target)


FAULT = FaultKind(
    name="stop",
    title="a node that is stopped in good order and started again",
    family=Family.PROCESS,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"after_ms": 1000, "kill_after_ms": 10_000},
    draws={"after_ms": Between(20, 4000), "kill_after_ms": Between(1000, 10_000)},
)
