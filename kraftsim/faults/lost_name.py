"""A host loses power before its directories were flushed: the last creations, renames and deletions of files are undone.

The content of files survives, so that only names are affected; with `zeros` a file that kept its new name has lost its content.
"""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf, Spoils
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.inode import Fate
from kraftsim.world.simulated.platter import Names, Wreck


def strike(injection: Strike) -> None:
    """Power off the host now and restart it later; it is effective if a name was undone, or a file lost its content."""
    host = injection.simulation.host(injection.target)
    if not host.is_alive:
        return
    kept = injection.text("kept") or "none"
    wreck = Wreck(names=Names.KEPT, fate=Fate.ZEROS) if kept == "zeros" else Wreck(names=Names.SOME if kept == "some" else Names.LOST, fate=Fate.KEPT)
    losses = injection.simulation.cut_power(host, wreck)
    if losses.lost_names or losses.torn_files:
        injection.bite(f"{losses.lost_names} names were undone, {losses.torn_files} files have a name but no content")
    injection.start_later(host, injection.integer("after_ms"))


FAULT = FaultKind(
    name="lost-name",
    title="a rename undone by a power loss",
    family=Family.DISK,
    strike=strike,
    strikes_on=("disk",),
    params={"kept": "none", "after_ms": 1000},
    draws={"kept": OneOf(("none", "some", "zeros")), "after_ms": Between(20, 4000)},
    spoils=Spoils.UNFLUSHED,
)
