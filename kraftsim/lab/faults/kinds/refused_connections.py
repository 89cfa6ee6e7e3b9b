"""Hosts refuse new connections while open ones keep working: a full backlog, or a firewall that
rejects.
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.lab.faults.field import Condition, SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import Gate


def inject(injection: Injection) -> None:
    """Refuse connection attempts over the links of the target for a while; it is effective at the
    first attempt.
    """
    guard_links(injection, Gate.REFUSE)


def guard_links(injection: Injection, gate: Gate) -> None:
    """Let connection attempts over the links of the target fail while the fault lasts."""
    links = [
        injection.simulation.network.link(source, target)
        for source, target in injection.directions()
    ]
    record_effect = injection.record_effect
    for link in links:
        link.guard(gate, record_effect)

    def accept_again() -> None:
        for link in links:
            link.unguard(gate, record_effect)

    injection.lasting(accept_again, injection.integer("duration_ms"))


async def over_sockets(injection: SocketInjection) -> None:
    """Reset new connections in the proxy."""
    await injection.while_it_lasts(
        injection.links(), Condition(refuses=True), injection.integer("duration_ms")
    )


FAULT = FaultKind(
    name="refused-connections",
    title="hosts that refuse connections",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 5000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(200, 6000)},
)
