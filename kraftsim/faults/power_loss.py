"""A host loses its power: what was not flushed may be gone, and peers hear nothing. It stays down; see `restart`."""

from kraftsim.faults.fault import Family, FaultKind, Spoils
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Take the power from the target; it bites if bytes were lost or connections hang."""
    host = strike.simulation.host(strike.target)
    connections = len(host.process.transports)
    lost_bytes = strike.simulation.kill(host, power_loss=True)
    if lost_bytes or connections:
        strike.bite(f"{lost_bytes} bytes were lost, {connections} connections fell silent")


FAULT = FaultKind(
    name="power-loss",
    title="a host without power",
    family=Family.PROCESS,
    strike=strike,
    spoils=Spoils.UNFLUSHED,
)
