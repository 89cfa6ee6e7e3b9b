"""A process is killed: connections are reset, the page cache stays. It stays down; see `restart`."""

from kraftsim.faults.fault import Family, FaultKind
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Kill the target's process."""
    host = strike.simulation.host(strike.target)
    connections = len(host.process.transports)
    was_alive = host.is_alive
    strike.simulation.kill(host)
    if was_alive:
        strike.bite(f"{connections} connections were reset")


FAULT = FaultKind(
    name="kill",
    title="kill -9 of a process",
    family=Family.PROCESS,
    strike=strike,
)
