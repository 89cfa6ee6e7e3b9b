"""Whoever leads the metadata quorum, or was made controller by ZooKeeper, is cut off from everybody, or from some hosts: it is deaf, mute, or both.

Who leads is known from what the nodes noted. If nobody does, the next leader is cut off as soon as it is elected. A leader that hears nobody and is
heard goes on for a while in the belief that it leads (KIP-595, check quorum). Source: Jepsen (partition of the primaries).
"""

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind, OneOf
from kraftsim.faults.field import Condition, FieldStrike
from kraftsim.faults.partition import part
from kraftsim.faults.strike import Strike

BOTH, DEAF, MUTE = "both", "in", "out"


def strike(strike: Strike) -> None:
    """Cut the leader off for a while; it bites when something is held back."""
    strike.when_led(lambda leader: part(strike, _silenced(strike, leader)))


def _silenced(strike: Strike, leader: str) -> list[tuple[str, str]]:
    ways = strike.text("ways")
    pairs = [pair for other in strike.hosts() if other != leader for pair in ((leader, other), (other, leader))]
    return [pair for pair in pairs if ways == BOTH or (ways == DEAF) == (pair[1] == leader)]


async def over_sockets(strike: FieldStrike) -> None:
    """Ask the nodes who leads, and let the proxy hold what it sends, or hears, or both."""
    leader = await strike.field.leader()
    ways = strike.text("ways")
    links = [link for link in strike.links_to_all if leader in link and (ways == BOTH or (ways == DEAF) == (link[1] == leader))]
    await strike.while_it_lasts(links, Condition(holds=True), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="isolate-leader",
    title="a leader that is cut off",
    family=Family.NETWORK,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"ways": BOTH, "duration_ms": 5000},
    aim=Aim.ALL,
    draws={"ways": OneOf((BOTH, DEAF, MUTE)), "duration_ms": Between(300, 6000)},
)
