"""Listings of the remote store are those of a while ago: what was written since is missing, what was deleted is there."""

from kraftsim.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.faults.remote_objects import ail, stores_of
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.objects import Ailment


def strike(strike: Strike) -> None:
    """Freeze what listings tell; it bites when one of them would tell something else."""
    for store in stores_of(strike):
        ail(strike, store, Ailment(bite=lambda: strike.bite("a listing was of the past"), stale_keys=tuple(store.contents)))


FAULT = FaultKind(
    name="stale-store-listing",
    title="listings of a remote store that are stale",
    family=Family.STORE,
    strike=strike,
    aim=Aim.ALL,
    strikes_on=("time", "event"),
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(500, 10000)},
)
