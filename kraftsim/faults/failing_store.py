"""Calls to the remote store fail, some of them after they took effect."""

from kraftsim.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.faults.remote_objects import ail, stores_of
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.objects import Ailment


def strike(injection: Strike) -> None:
    """Let so many of a thousand calls fail; it is effective with the first that does."""
    for store in stores_of(injection):
        ail(injection, store, Ailment(bite=lambda: injection.bite("a call failed"), failing_permille=injection.integer("permille")))


FAULT = FaultKind(
    name="failing-store",
    title="a failing remote store",
    family=Family.STORE,
    strike=strike,
    aim=Aim.ALL,
    strikes_on=("time", "event"),
    params={"permille": 500, "duration_ms": 5000},
    draws={"permille": Between(50, 1000), "duration_ms": Between(500, 5000)},
)
