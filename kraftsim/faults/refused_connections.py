"""Hosts refuse new connections while those that are open go on: a full backlog, or a firewall that rejects."""

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.faults.field import Condition, FieldStrike
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import Gate


def strike(strike: Strike) -> None:
    """Refuse connects over the links of the target for a while; it bites when somebody tries."""
    guard_links(strike, Gate.REFUSE)


def guard_links(strike: Strike, gate: Gate) -> None:
    """Let connects over the links of the target come to an end for as long as the fault lasts."""
    links = [strike.simulation.network.link(source, target) for source, target in strike.directions()]
    bite = strike.bite
    for link in links:
        link.guard(gate, bite)

    def open_again() -> None:
        for link in links:
            link.unguard(gate, bite)

    strike.lasting(open_again, strike.integer("duration_ms"))


async def over_sockets(strike: FieldStrike) -> None:
    """Let the proxy reset whoever connects."""
    await strike.while_it_lasts(strike.links(), Condition(refuses=True), strike.integer("duration_ms"))


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
