"""Every host hears a majority, and no two hear the same one: the network is a ring.

Each host hears its neighbours on a ring that is drawn, and drops what the others send. With three hosts that leaves each link in one direction only;
from five on neighbours can talk, and an elected leader is not believed by everybody. Source: Jepsen (majorities-ring).
"""

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.faults.field import Condition, FieldStrike
from kraftsim.faults.partition import part
from kraftsim.faults.strike import Strike

HOSTS_MIN = 3


def strike(strike: Strike) -> None:
    """Part the hosts of the target (all of them without one) for a while; it bites when something is held back."""
    hosts = strike.hosts()
    if len(hosts) < HOSTS_MIN:
        return
    strike.random.shuffle(hosts)
    part(strike, silenced(hosts))


def silenced(ring: list[str]) -> list[tuple[str, str]]:
    """Return the (source, target) pairs between which nothing passes: each target hears only the majority in whose middle it stands."""
    size = len(ring)
    majority = size // 2 + 1
    pairs = []
    for first in range(size):
        heard = [ring[(first + step) % size] for step in range(majority)]
        listener = heard[majority // 2]
        pairs += [(source, listener) for source in ring if source not in heard]
    return pairs


async def over_sockets(strike: FieldStrike) -> None:
    """The same among the nodes, clients being left alone: the proxy holds what is not heard."""
    nodes = strike.nodes()
    if len(nodes) < HOSTS_MIN:
        return
    strike.random.shuffle(nodes)
    await strike.while_it_lasts(silenced(nodes), Condition(holds=True), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="ring-partition",
    title="a ring in which every host hears another majority",
    family=Family.NETWORK,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 10_000},
    aim=Aim.ALL,
    draws={"duration_ms": Between(300, 8000)},
)
