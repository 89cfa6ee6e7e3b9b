"""Nothing gets through between hosts, in both directions ('a<>b', or 'a' from all others) or in one ('a>b')."""

from collections.abc import Sequence

from kraftsim.faults.fault import EVERYWHERE, Aim, Between, Family, FaultKind
from kraftsim.faults.field import Condition, FieldStrike
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Block the links of the target for a while; it bites when bytes or a connect are held back."""
    part(strike, strike.directions())


def part(strike: Strike, pairs: Sequence[tuple[str, str]]) -> None:
    """Block some links for as long as the fault lasts."""
    network = strike.simulation.network
    bite = strike.bite
    for source, target in pairs:
        network.block(source, target, bite)

    def heal() -> None:
        for source, target in pairs:
            network.unblock(source, target, bite)

    strike.lasting(heal, strike.integer("duration_ms"))


async def over_sockets(strike: FieldStrike) -> None:
    """Let the proxy hold what is sent over the links, as TCP would send it again once all is well; connects are made and then hear nothing."""
    await strike.while_it_lasts(strike.links(), Condition(holds=True), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="partition",
    title="hosts that cannot reach each other",
    family=Family.NETWORK,
    strike=strike,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={"duration_ms": 10_000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(300, 6000)},
)
