"""Every host can reach a majority, and no two the same one: the network is a ring.

Each host receives from its neighbours on a random ring, and drops what the others send. With three
hosts each link works in one direction only; from five on neighbours can talk, and an elected leader
is not recognised by all. Source: Jepsen (majorities-ring).
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.lab.faults.field import Condition, SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.kinds.partition import part

HOSTS_MIN = 3


def inject(injection: Injection) -> None:
    """Partition the hosts of the target (all of them without one) for a while; it is effective when
    bytes or a connect are held back.
    """
    hosts = injection.hosts()
    if len(hosts) < HOSTS_MIN:
        return
    injection.random.shuffle(hosts)
    part(injection, silenced(hosts))


def silenced(ring: list[str]) -> list[tuple[str, str]]:
    """Return the (source, target) pairs that are blocked: each target receives only from the
    majority around it on the ring.
    """
    size = len(ring)
    majority = size // 2 + 1
    pairs = []
    for first in range(size):
        reachable = [ring[(first + step) % size] for step in range(majority)]
        listener = reachable[majority // 2]
        pairs += [(source, listener) for source in ring if source not in reachable]
    return pairs


async def over_sockets(injection: SocketInjection) -> None:
    """The same among the nodes, without clients: the proxy holds the bytes of blocked pairs."""
    nodes = injection.nodes()
    if len(nodes) < HOSTS_MIN:
        return
    injection.random.shuffle(nodes)
    await injection.while_it_lasts(
        silenced(nodes), Condition(holds=True), injection.integer("duration_ms")
    )


FAULT = FaultKind(
    name="ring-partition",
    title="a ring partition with a different majority for each host",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 10_000},
    aim=Aim.ALL,
    draws={"duration_ms": Between(300, 8000)},
)
