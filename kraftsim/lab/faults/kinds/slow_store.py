"""Every call of the remote store takes longer: fetches wait for remote.fetch.max.wait.ms at most,
copies for as long as they take.
"""

from kraftsim.lab.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.storage_faults import impair, stores_of
from kraftsim.world.simulated.objects import StoreFault

MS_PER_SECOND = 1000


def inject(injection: Injection) -> None:
    """Delay every call; it is effective with the first one."""
    for store in stores_of(injection):
        impair(
            injection,
            store,
            StoreFault(
                record_effect=lambda: injection.record_effect("a call took longer"),
                delay_seconds=injection.integer("delay_ms") / MS_PER_SECOND,
            ),
        )


FAULT = FaultKind(
    name="slow-store",
    title="a slow remote store",
    family=Family.STORE,
    inject=inject,
    aim=Aim.ALL,
    triggers_on=("time", "event"),
    params={"delay_ms": 1000, "duration_ms": 5000},
    draws={"delay_ms": Between(100, 5000), "duration_ms": Between(500, 5000)},
)
