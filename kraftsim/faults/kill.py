"""A process is killed: connections are reset, the page cache survives. It stays down; see `restart`."""

from kraftsim.faults.fault import EVERYWHERE, Family, FaultKind
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.strike import Strike


def strike(injection: Strike) -> None:
    """Kill the target's process."""
    host = injection.simulation.host(injection.target)
    connections = len(host.process.transports)
    was_alive = host.is_alive
    injection.simulation.kill(host)
    if was_alive:
        injection.bite(f"{connections} connections were reset")


async def over_sockets(injection: FieldStrike) -> None:
    """Send SIGKILL; an embedded node is aborted."""
    if await injection.field.kill(injection.target):
        injection.bite("a node went down")


FAULT = FaultKind(
    name="kill",
    title="kill -9 of a process",
    family=Family.PROCESS,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
)
