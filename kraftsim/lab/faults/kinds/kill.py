"""A process is killed: connections are reset, the page cache survives.

It stays down; see `restart`.
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Family, FaultKind
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Kill the target's process."""
    host = injection.simulation.host(injection.target)
    connections = len(host.process.transports)
    was_alive = host.is_alive
    injection.simulation.kill(host)
    if was_alive:
        injection.record_effect(f"{connections} connections were reset")


async def over_sockets(injection: SocketInjection) -> None:
    """Send SIGKILL; an embedded node is aborted."""
    if await injection.field.kill(injection.target):
        injection.record_effect("a node went down")


FAULT = FaultKind(
    name="kill",
    title="kill -9 of a process",
    family=Family.PROCESS,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
)
