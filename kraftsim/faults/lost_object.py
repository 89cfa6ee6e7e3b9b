"""The remote store loses an object that it had acknowledged, until it is healed: for example from a backup."""

from kraftsim.faults.fault import Aim, Between, Family, FaultKind, OneOf
from kraftsim.faults.remote_objects import drawn_key
from kraftsim.faults.strike import Strike


def strike(injection: Strike) -> None:
    """Delete one object with a given key suffix; it is effective if there is one."""
    found = drawn_key(injection, injection.text("ending") or "")
    if found is None:
        return
    store, key = found
    lost = store.contents.pop(key)
    injection.bite(f"{key} is gone")

    def heal() -> None:
        store.contents.setdefault(key, lost)

    injection.lasting(heal, injection.integer("duration_ms"))


FAULT = FaultKind(
    name="lost-object",
    title="a remote store that loses an object",
    family=Family.STORE,
    strike=strike,
    aim=Aim.ALL,
    strikes_on=("time", "event"),
    params={"ending": ".log", "duration_ms": 5000},
    draws={"ending": OneOf((".log", ".index", ".snapshot", ".leader_epoch_checkpoint")), "duration_ms": Between(500, 5000)},
)
