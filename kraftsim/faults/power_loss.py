"""A host loses power: unflushed data may be lost, and peers are not notified. It stays down; see `restart`."""

from kraftsim.faults.fault import Family, FaultKind, Spoils
from kraftsim.faults.strike import Strike


def strike(injection: Strike) -> None:
    """Power off the target; it is effective if bytes were lost or connections hang."""
    host = injection.simulation.host(injection.target)
    connections = len(host.process.transports)
    lost_bytes = injection.simulation.kill(host, power_loss=True)
    if lost_bytes or connections:
        injection.bite(f"{lost_bytes} bytes were lost, {connections} connections are half-open")


FAULT = FaultKind(
    name="power-loss",
    title="a power loss",
    family=Family.PROCESS,
    strike=strike,
    spoils=Spoils.UNFLUSHED,
)
