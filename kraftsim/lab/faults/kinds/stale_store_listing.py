"""Listings of the remote store are stale: objects written since are missing, objects deleted since
are listed.
"""

from kraftsim.lab.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.storage_faults import impair, stores_of
from kraftsim.world.simulated.objects import StoreFault


def inject(injection: Injection) -> None:
    """Freeze the listings; it is effective when one of them would be different."""
    for store in stores_of(injection):
        impair(
            injection,
            store,
            StoreFault(
                record_effect=lambda: injection.record_effect("a listing was stale"),
                stale_keys=tuple(store.contents),
            ),
        )


FAULT = FaultKind(
    name="stale-store-listing",
    title="stale listings of a remote store",
    family=Family.STORE,
    inject=inject,
    aim=Aim.ALL,
    triggers_on=("time", "event"),
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(500, 10000)},
)
