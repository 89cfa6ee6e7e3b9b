"""Listings of the remote store are stale: objects written since are missing, objects deleted since are listed."""

from kraftsim.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.faults.remote_objects import ail, stores_of
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.objects import Ailment


def strike(injection: Strike) -> None:
    """Freeze the listings; it is effective when one of them would be different."""
    for store in stores_of(injection):
        ail(injection, store, Ailment(bite=lambda: injection.bite("a listing was stale"), stale_keys=tuple(store.contents)))


FAULT = FaultKind(
    name="stale-store-listing",
    title="stale listings of a remote store",
    family=Family.STORE,
    strike=strike,
    aim=Aim.ALL,
    strikes_on=("time", "event"),
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(500, 10000)},
)
