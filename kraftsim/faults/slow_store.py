"""Every call of the remote store takes longer: fetches wait for remote.fetch.max.wait.ms at most, copies for as long as they take."""

from kraftsim.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.faults.remote_objects import ail, stores_of
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.objects import Ailment

MS_PER_SECOND = 1000


def strike(injection: Strike) -> None:
    """Delay every call; it is effective with the first one."""
    for store in stores_of(injection):
        ail(injection, store, Ailment(bite=lambda: injection.bite("a call took longer"), delay_seconds=injection.integer("delay_ms") / MS_PER_SECOND))


FAULT = FaultKind(
    name="slow-store",
    title="a slow remote store",
    family=Family.STORE,
    strike=strike,
    aim=Aim.ALL,
    strikes_on=("time", "event"),
    params={"delay_ms": 1000, "duration_ms": 5000},
    draws={"delay_ms": Between(100, 5000), "duration_ms": Between(500, 5000)},
)
