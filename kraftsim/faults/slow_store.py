"""The remote store takes longer for everything: readers wait as long as remote.fetch.max.wait.ms, copies take as long as they take."""

from kraftsim.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.faults.remote_objects import ail, stores_of
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.objects import Ailment

MS_PER_SECOND = 1000


def strike(strike: Strike) -> None:
    """Delay every call; it bites with the first one."""
    for store in stores_of(strike):
        ail(strike, store, Ailment(bite=lambda: strike.bite("a call took longer"), delay_seconds=strike.integer("delay_ms") / MS_PER_SECOND))


FAULT = FaultKind(
    name="slow-store",
    title="a remote store that is slow",
    family=Family.STORE,
    strike=strike,
    aim=Aim.ALL,
    strikes_on=("time", "event"),
    params={"delay_ms": 1000, "duration_ms": 5000},
    draws={"delay_ms": Between(100, 5000), "duration_ms": Between(500, 5000)},
)
