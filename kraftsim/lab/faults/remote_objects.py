"""Common code of remote-store faults: the stores of a simulation, and how to impair one of them for
a while.
"""

from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated.objects import SharedObjects, StoreFault


def stores_of(injection: Injection) -> list[SharedObjects]:
    """Return every store that nodes use, in the order of their locations."""
    return [store for _, store in sorted(injection.simulation.stores.items())]


def impair(injection: Injection, store: SharedObjects, ailment: StoreFault) -> None:
    """Impair a store for `duration_ms`."""
    injection.lasting(store.impair(ailment), injection.integer("duration_ms"))


def random_key(injection: Injection, ending: str) -> tuple[SharedObjects, str] | None:
    """Choose an object with a given key suffix at random; None if there is none yet."""
    found = [
        (store, key)
        for store in stores_of(injection)
        for key in sorted(store.contents)
        if key.endswith(ending)
    ]
    return injection.random.choice(found) if found else None
