"""A network partition between hosts, in both directions ('a<>b', or 'a' from all others) or in one
('a>b').
"""

from collections.abc import Sequence

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.lab.faults.field import Condition, SocketInjection
from kraftsim.lab.faults.injection import Injection


def inject(injection: Injection) -> None:
    """Block the links of the target for a while; it is effective when bytes or a connect are held
    back.
    """
    part(injection, injection.directions())


def part(injection: Injection, pairs: Sequence[tuple[str, str]]) -> None:
    """Block some links while the fault lasts."""
    network = injection.simulation.network
    record_effect = injection.record_effect
    for source, target in pairs:
        network.block(source, target, record_effect)

    def heal() -> None:
        for source, target in pairs:
            network.unblock(source, target, record_effect)

    injection.lasting(heal, injection.integer("duration_ms"))


async def over_sockets(injection: SocketInjection) -> None:
    """Hold bytes in the proxy, as TCP would retransmit them afterwards; new connections are
    accepted but transfer no data.
    """
    await injection.while_it_lasts(
        injection.links(), Condition(holds=True), injection.integer("duration_ms")
    )


FAULT = FaultKind(
    name="partition",
    title="a network partition",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 10_000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(300, 6000)},
)
