"""New connections time out while open ones keep working: a firewall that drops, or a host that lost
its routes for new peers.
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.lab.faults.field import Condition, SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.kinds.refused_connections import guard_links
from kraftsim.world.simulated import Gate


def inject(injection: Injection) -> None:
    """Drop connection attempts over the links of the target for a while; it is effective at the
    first attempt.
    """
    guard_links(injection, Gate.DROP)


async def over_sockets(injection: SocketInjection) -> None:
    """Accept connections in the proxy without transferring data; they work once the fault is
    over.
    """
    await injection.while_it_lasts(
        injection.links(), Condition(ignores=True), injection.integer("duration_ms")
    )


FAULT = FaultKind(
    name="connect-timeout",
    title="connection attempts that time out",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 5000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(200, 8000)},
)
