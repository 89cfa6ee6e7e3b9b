"""The remote store loses an object that it had promised to keep, until it is healed: from a backup, say."""

from kraftsim.faults.fault import Aim, Between, Family, FaultKind, OneOf
from kraftsim.faults.remote_objects import drawn_key
from kraftsim.faults.strike import Strike


def strike(strike: Strike) -> None:
    """Take away one object whose key ends so; it bites if there is one."""
    found = drawn_key(strike, strike.text("ending") or "")
    if found is None:
        return
    store, key = found
    lost = store.contents.pop(key)
    strike.bite(f"{key} is gone")

    def heal() -> None:
        store.contents.setdefault(key, lost)

    strike.lasting(heal, strike.integer("duration_ms"))


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
