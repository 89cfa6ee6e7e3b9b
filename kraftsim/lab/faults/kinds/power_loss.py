"""A host loses power: unflushed data may be lost, and peers are not notified.

It stays down; see `restart`.
"""

from kraftsim.lab.faults.fault import DataLoss, Family, FaultKind
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Power off the target; it is effective if bytes were lost or connections hang."""
    host = injection.simulation.host(injection.target)
    connections = len(host.process.transports)
    lost_bytes = injection.simulation.kill(host, power_loss=True)
    if lost_bytes or connections:
        injection.record_effect(
            f"{lost_bytes} bytes were lost, {connections} connections are half-open"
        )


FAULT = FaultKind(
    name="power-loss",
    title="a power loss",
    family=Family.PROCESS,
    inject=inject,
    data_loss=DataLoss.UNFLUSHED,
)
