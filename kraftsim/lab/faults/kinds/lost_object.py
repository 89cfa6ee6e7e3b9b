"""The remote store loses an object that it had acknowledged, until it is healed: for example from a
backup.
"""

from kraftsim.lab.faults.fault import Aim, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.storage_faults import random_key


def inject(injection: Injection) -> None:
    """Delete one object with a given key suffix; it is effective if there is one."""
    found = random_key(injection, injection.text("ending") or "")
    if found is None:
        return
    store, key = found
    lost = store.contents.pop(key)
    injection.record_effect(f"{key} is gone")

    def heal() -> None:
        store.contents.setdefault(key, lost)

    injection.lasting(heal, injection.integer("duration_ms"))


FAULT = FaultKind(
    name="lost-object",
    title="a remote store that loses an object",
    family=Family.STORE,
    inject=inject,
    aim=Aim.ALL,
    triggers_on=("time", "event"),
    params={"ending": ".log", "duration_ms": 5000},
    draws={
        "ending": OneOf((".log", ".index", ".snapshot", ".leader_epoch_checkpoint")),
        "duration_ms": Between(500, 5000),
    },
)
