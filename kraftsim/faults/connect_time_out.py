"""Connects are not answered while connections that are open go on: a firewall that drops, or a host that lost its routes for new peers."""

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.faults.field import Condition, FieldStrike
from kraftsim.faults.refused_connections import guard_links
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import Gate


def strike(strike: Strike) -> None:
    """Drop connects over the links of the target for a while; it bites when somebody tries."""
    guard_links(strike, Gate.DROP)


async def over_sockets(strike: FieldStrike) -> None:
    """Let whoever connects hear nothing: the connection is made with the proxy, and goes on once the fault is over."""
    await strike.while_it_lasts(strike.links(), Condition(ignores=True), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="connect-time-out",
    title="connects that nobody answers",
    family=Family.NETWORK,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 5000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(200, 8000)},
)
