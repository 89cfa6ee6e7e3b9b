"""Nothing gets through between hosts, in both directions ('a<>b', or 'a' from all others) or in one ('a>b')."""

from kraftsim.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Block the links of the target for a while; it bites when bytes or a connect are held back."""
    network = strike.simulation.network
    pairs = strike.directions()
    bite = strike.bite
    for source, target in pairs:
        network.block(source, target, bite)

    def heal() -> None:
        for source, target in pairs:
            network.unblock(source, target, bite)

    strike.lasting(heal, strike.integer("duration_ms"))


FAULT = FaultKind(
    name="partition",
    title="hosts that cannot reach each other",
    family=Family.NETWORK,
    strike=strike,
    params={"duration_ms": 10_000},
    aim=Aim.LINK,
    draws={"duration_ms": Between(300, 6000)},
)
