"""A link is clogged: its bytes wait, and arrive all at once and in order when the clog ends.

Nothing is lost, and TCP does not time out.

A partition drops segments and lets TCP retransmit them; here the peer receives nothing and then
everything at one moment.
Source: FoundationDB's simulator (clogPair).
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.lab.faults.field import Condition, SocketInjection
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Clog the links of the target for a while; it is effective when bytes or a connect are
    held.
    """
    clog_links(injection, injection.directions())


def clog_links(injection: Injection, pairs: list[tuple[str, str]]) -> None:
    """Clog some links while the fault lasts."""
    network = injection.simulation.network
    record_effect = injection.record_effect
    for source, target in pairs:
        network.clog(source, target, record_effect)

    def clear() -> None:
        for source, target in pairs:
            network.unclog(source, target, record_effect)

    injection.lasting(clear, injection.integer("duration_ms"))


async def over_sockets(injection: SocketInjection) -> None:
    """Hold bytes in the proxy; new connections are accepted but transfer no data."""
    await injection.while_it_lasts(
        injection.links(), Condition(holds=True), injection.integer("duration_ms")
    )


FAULT = FaultKind(
    name="clog",
    title="a clogged link",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 5000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(50, 6000)},
)
