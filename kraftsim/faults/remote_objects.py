"""What the faults of remote stores have in common: the stores of a simulation, and how one of them ails for a while."""

from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.objects import Ailment, SharedObjects


def stores_of(strike: Strike) -> list[SharedObjects]:
    """Return every store that nodes use, in the order of their locations."""
    return [store for _, store in sorted(strike.simulation.stores.items())]


def ail(strike: Strike, store: SharedObjects, ailment: Ailment) -> None:
    """Let a store ail for `duration_ms`."""
    strike.lasting(store.ail(ailment), strike.integer("duration_ms"))


def drawn_key(strike: Strike, ending: str) -> tuple[SharedObjects, str] | None:
    """Draw an object whose key ends so; None if there is none yet."""
    found = [(store, key) for store in stores_of(strike) for key in sorted(store.contents) if key.endswith(ending)]
    return strike.random.choice(found) if found else None
