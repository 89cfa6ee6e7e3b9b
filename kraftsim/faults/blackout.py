"""All nodes of a kind lose their power at the same moment, and come back one after the other: a rack, a building.

What a quorum has promised it must still know then; brokers whose records are nowhere else lose what they had not flushed.
"""

from kraftsim.faults.fault import Between, Family, FaultKind, Spoils
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Take the power from the target and from every host whose name begins as its name does (`controller-`, `broker-`)."""
    simulation = strike.simulation
    prefix = strike.target.rpartition("-")[0] + "-"
    dark = [host for name, host in simulation.hosts.items() if name == strike.target or name.startswith(prefix)]
    connections = lost_bytes = 0
    for host in [host for host in dark if host.is_alive]:
        connections += len(host.process.transports)
        lost_bytes += simulation.kill(host, power_loss=True)
        strike.start_later(host, strike.integer("after_ms") + strike.random.randint(0, strike.integer("apart_ms")))
    if connections or lost_bytes:
        strike.bite(f"{lost_bytes} bytes were lost, {connections} connections fell silent")


FAULT = FaultKind(
    name="blackout",
    title="all nodes of a kind without power",
    family=Family.PROCESS,
    strike=strike,
    params={"after_ms": 1000, "apart_ms": 1000},
    draws={"after_ms": Between(20, 3000), "apart_ms": Between(0, 3000)},
    spoils=Spoils.UNFLUSHED,
)
