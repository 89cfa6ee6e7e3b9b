"""All nodes of a role lose power at the same moment, and restart one after the other: a rack, a
building.

A quorum must not lose what it has committed; brokers without replication lose records that they had
not flushed.
"""

from kraftsim.lab.faults.fault import Between, DataLoss, Family, FaultKind
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Power off the target and every host with the same name prefix (`controller-`, `broker-`)."""
    simulation = injection.simulation
    prefix = injection.target.rpartition("-")[0] + "-"
    dark = [
        host
        for name, host in simulation.hosts.items()
        if name == injection.target or name.startswith(prefix)
    ]
    connections = lost_bytes = 0
    for host in [host for host in dark if host.is_alive]:
        connections += len(host.process.transports)
        lost_bytes += simulation.kill(host, power_loss=True)
        injection.start_later(
            host,
            injection.integer("after_ms")
            + injection.random.randint(0, injection.integer("apart_ms")),
        )
    if connections or lost_bytes:
        injection.record_effect(
            f"{lost_bytes} bytes were lost, {connections} connections are half-open"
        )


FAULT = FaultKind(
    name="blackout",
    title="a power loss of all nodes of a role",
    family=Family.PROCESS,
    inject=inject,
    params={"after_ms": 1000, "apart_ms": 1000},
    draws={"after_ms": Between(20, 3000), "apart_ms": Between(0, 3000)},
    data_loss=DataLoss.UNFLUSHED,
)
