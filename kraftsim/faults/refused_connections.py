"""Hosts refuse new connections while open ones keep working: a full backlog, or a firewall that rejects."""

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.faults.field import Condition, FieldStrike
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import Gate


def strike(injection: Strike) -> None:
    """Refuse connection attempts over the links of the target for a while; it is effective at the first attempt."""
    guard_links(injection, Gate.REFUSE)


def guard_links(injection: Strike, gate: Gate) -> None:
    """Let connection attempts over the links of the target fail while the fault lasts."""
    links = [injection.simulation.network.link(source, target) for source, target in injection.directions()]
    bite = injection.bite
    for link in links:
        link.guard(gate, bite)

    def accept_again() -> None:
        for link in links:
            link.unguard(gate, bite)

    injection.lasting(accept_again, injection.integer("duration_ms"))


async def over_sockets(injection: FieldStrike) -> None:
    """Reset new connections in the proxy."""
    await injection.while_it_lasts(injection.links(), Condition(refuses=True), injection.integer("duration_ms"))


FAULT = FaultKind(
    name="refused-connections",
    title="hosts that refuse connections",
    family=Family.NETWORK,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 5000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(200, 6000)},
)
