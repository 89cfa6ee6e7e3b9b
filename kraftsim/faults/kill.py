"""A process is killed: connections are reset, the page cache stays. It stays down; see `restart`."""

from kraftsim.faults.fault import EVERYWHERE, Family, FaultKind
from kraftsim.faults.field import FieldStrike
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Kill the target's process."""
    host = strike.simulation.host(strike.target)
    connections = len(host.process.transports)
    was_alive = host.is_alive
    strike.simulation.kill(host)
    if was_alive:
        strike.bite(f"{connections} connections were reset")


async def over_sockets(strike: FieldStrike) -> None:
    """Send SIGKILL; an embedded node is aborted."""
    if await strike.field.kill(strike.target):
        strike.bite("a node went down")


FAULT = FaultKind(
    name="kill",
    title="kill -9 of a process",
    family=Family.PROCESS,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
)
