"""Calls to the remote store fail, some of them after they were carried out."""

from kraftsim.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.faults.remote_objects import ail, stores_of
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.objects import Ailment


def strike(strike: Strike) -> None:
    """Let so many of a thousand calls fail; it bites with the first that does."""
    for store in stores_of(strike):
        ail(strike, store, Ailment(bite=lambda: strike.bite("a call failed"), failing_permille=strike.integer("permille")))


FAULT = FaultKind(
    name="failing-store",
    title="a remote store that fails",
    family=Family.STORE,
    strike=strike,
    aim=Aim.ALL,
    strikes_on=("time", "event"),
    params={"permille": 500, "duration_ms": 5000},
    draws={"permille": Between(50, 1000), "duration_ms": Between(500, 5000)},
)
