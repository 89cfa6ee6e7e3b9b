"""A process is paused for a while, as in a long garbage collection: its peers get no answers, and
everything pending happens at once afterwards.
"""

from kraftsim.lab.faults.fault import PROCESSES, SIM, Between, Family, FaultKind
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Pause the target's process now and resume it later."""
    simulation = injection.simulation
    host = simulation.host(injection.target)
    paused = simulation.pause(host)

    def resume() -> None:
        waited = simulation.resume(host) if host.process is paused else 0
        if waited:
            injection.record_effect(f"{waited} callbacks had to wait")

    injection.lasting(resume, injection.integer("duration_ms"))


async def over_sockets(injection: SocketInjection) -> None:
    """Send SIGSTOP, and SIGCONT later; a single embedded node cannot be paused."""
    if not await injection.field.pause(injection.target):
        return
    await injection.lasts(injection.integer("duration_ms"))
    if await injection.field.resume(injection.target):
        injection.record_effect("a node was paused")


FAULT = FaultKind(
    name="pause",
    title="a paused process",
    family=Family.PROCESS,
    inject=inject,
    over_sockets=over_sockets,
    modes=(SIM, PROCESSES),
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(100, 6000)},
)
