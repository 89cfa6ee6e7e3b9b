"""The leader of the metadata quorum, or the controller in ZooKeeper mode, is isolated from all or
some hosts, in one direction or both.

The leader is known from the events of the nodes. If there is none, the next leader is isolated as
soon as it is elected. A leader that can only send keeps acting as leader for a while (KIP-595,
check quorum). Source: Jepsen (partition of the primaries).
"""

from kraftsim.lab.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.field import Condition, SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.kinds.partition import part

BOTH, DEAF, MUTE = "both", "in", "out"


def inject(injection: Injection) -> None:
    """Isolate the leader for a while; it is effective when bytes or a connect are held back."""
    injection.when_led(lambda leader: part(injection, _silenced(injection, leader)))


def _silenced(injection: Injection, leader: str) -> list[tuple[str, str]]:
    directions = injection.text("ways")
    pairs = [
        pair
        for other in injection.hosts()
        if other != leader
        for pair in ((leader, other), (other, leader))
    ]
    return [
        pair for pair in pairs if directions == BOTH or (directions == DEAF) == (pair[1] == leader)
    ]


async def over_sockets(injection: SocketInjection) -> None:
    """Find the leader, and let the proxy hold what it sends, or receives, or both."""
    leader = await injection.field.leader()
    directions = injection.text("ways")
    links = [
        link
        for link in injection.links_to_all
        if leader in link and (directions == BOTH or (directions == DEAF) == (link[1] == leader))
    ]
    await injection.while_it_lasts(links, Condition(holds=True), injection.integer("duration_ms"))


FAULT = FaultKind(
    name="isolate-leader",
    title="an isolated leader",
    family=Family.NETWORK,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"ways": BOTH, "duration_ms": 5000},
    aim=Aim.ALL,
    draws={"ways": OneOf((BOTH, DEAF, MUTE)), "duration_ms": Between(300, 6000)},
)
