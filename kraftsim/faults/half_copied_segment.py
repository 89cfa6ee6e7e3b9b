"""A copy of a segment gets no further than one of its objects: the records may be there, and what belongs to them not."""

from kraftsim.faults.fault import Aim, Between, Family, FaultKind, OneOf
from kraftsim.faults.remote_objects import ail, stores_of
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.objects import Ailment


def strike(strike: Strike) -> None:
    """Let writes of one kind of object fail; it bites with the first."""
    ending = strike.text("ending")
    for store in stores_of(strike):
        ail(strike, store, Ailment(bite=lambda: strike.bite(f"no object {ending} could be written"), fails_at=ending))


FAULT = FaultKind(
    name="half-copied-segment",
    title="copies of segments that stay halves",
    family=Family.STORE,
    strike=strike,
    aim=Aim.ALL,
    strikes_on=("time", "event"),
    params={"ending": ".snapshot", "duration_ms": 5000},
    draws={"ending": OneOf((".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot")), "duration_ms": Between(500, 5000)},
)
