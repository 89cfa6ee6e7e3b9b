"""A link is clogged: what goes over it waits, and arrives all at once and in order when the clog is gone. Nothing is lost, nothing times out below.

A partition loses what arrives and lets TCP send it again; here the peer hears nothing and then, in one moment, everything.
Source: FoundationDB's simulator (clogPair).
"""

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.faults.field import Condition, FieldStrike
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Clog the links of the target for a while; it bites when bytes or a connect are held."""
    clog_links(strike, strike.directions())


def clog_links(strike: Strike, pairs: list[tuple[str, str]]) -> None:
    """Clog some links for as long as the fault lasts."""
    network = strike.simulation.network
    bite = strike.bite
    for source, target in pairs:
        network.clog(source, target, bite)

    def clear() -> None:
        for source, target in pairs:
            network.unclog(source, target, bite)

    strike.lasting(clear, strike.integer("duration_ms"))


async def over_sockets(strike: FieldStrike) -> None:
    """Let the proxy hold what is sent; connects are made and then hear nothing."""
    await strike.while_it_lasts(strike.links(), Condition(holds=True), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="clog",
    title="a link that is clogged",
    family=Family.NETWORK,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 5000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(50, 6000)},
)
