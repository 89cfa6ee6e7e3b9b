"""The producer snapshot of a segment in the remote store is replaced by that of another segment of
the partition, until it is healed.
"""

from kraftsim.lab.faults.fault import Aim, Between, Family, FaultKind
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.storage_faults import random_key

SNAPSHOT = ".snapshot"


def inject(injection: Injection) -> None:
    """Replace a snapshot by another one of the same directory; it is effective if there are two
    that differ.
    """
    found = random_key(injection, SNAPSHOT)
    if found is None:
        return
    store, key = found
    directory = key.rpartition("/")[0]
    others = [
        each
        for each in sorted(store.contents)
        if each.startswith(f"{directory}/") and each.endswith(SNAPSHOT) and each != key
    ]
    others = [each for each in others if store.contents[each] != store.contents[key]]
    if not others:
        return
    right, other = store.contents[key], injection.random.choice(others)
    store.contents[key] = store.contents[other]
    injection.record_effect(f"{key} has the content of {other}")

    def heal() -> None:
        if key in store.contents:
            store.contents[key] = right

    injection.lasting(heal, injection.integer("duration_ms"))


FAULT = FaultKind(
    name="snapshot-of-another-segment",
    title="a producer snapshot of another segment",
    family=Family.STORE,
    inject=inject,
    aim=Aim.ALL,
    triggers_on=("time", "event"),
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(500, 5000)},
)
