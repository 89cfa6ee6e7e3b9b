"""Calls to the remote store fail, some of them after they took effect."""

from kraftsim.lab.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.storage_faults import impair, stores_of
from kraftsim.world.simulated.objects import StoreFault


def inject(injection: Injection) -> None:
    """Let so many of a thousand calls fail; it is effective with the first that does."""
    for store in stores_of(injection):
        impair(
            injection,
            store,
            StoreFault(
                record_effect=lambda: injection.record_effect("a call failed"),
                failing_permille=injection.integer("permille"),
            ),
        )


FAULT = FaultKind(
    name="failing-store",
    title="a failing remote store",
    family=Family.STORE,
    inject=inject,
    aim=Aim.ALL,
    triggers_on=("time", "event"),
    params={"permille": 500, "duration_ms": 5000},
    draws={"permille": Between(50, 1000), "duration_ms": Between(500, 5000)},
)
