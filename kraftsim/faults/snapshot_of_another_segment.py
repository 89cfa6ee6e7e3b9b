"""The producer snapshot of a segment in the remote store is that of another one of its partition, until it is healed."""

from kraftsim.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.faults.remote_objects import drawn_key
from kraftsim.faults.strike import Strike

SNAPSHOT = ".snapshot"


def strike(strike: Strike) -> None:
    """Put a snapshot in the place of another one of the same directory; it bites if there are two that differ."""
    found = drawn_key(strike, SNAPSHOT)
    if found is None:
        return
    store, key = found
    directory = key.rpartition("/")[0]
    others = [each for each in sorted(store.contents) if each.startswith(f"{directory}/") and each.endswith(SNAPSHOT) and each != key]
    others = [each for each in others if store.contents[each] != store.contents[key]]
    if not others:
        return
    right, other = store.contents[key], strike.random.choice(others)
    store.contents[key] = store.contents[other]
    strike.bite(f"{key} holds what {other} does")

    def heal() -> None:
        if key in store.contents:
            store.contents[key] = right

    strike.lasting(heal, strike.integer("duration_ms"))


FAULT = FaultKind(
    name="snapshot-of-another-segment",
    title="a producer snapshot of another segment",
    family=Family.STORE,
    strike=strike,
    aim=Aim.ALL,
    strikes_on=("time", "event"),
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(500, 5000)},
)
