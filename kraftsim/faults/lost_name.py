"""A host loses its power before its directories were flushed: files that were created, renamed or deleted last have the names of before.

What is in the files is all there, so that only names are looked at; with `zeros` a file that kept its new name has lost its content.
"""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf, Spoils
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.inode import Fate
from kraftsim.world.simulated.platter import Names, Wreck


def strike(strike: Strike) -> None:
    """Take the power now and start the host again later; it bites if a name came undone, or kept what was never written."""
    host = strike.simulation.host(strike.target)
    if not host.is_alive:
        return
    kept = strike.text("kept") or "none"
    wreck = Wreck(names=Names.KEPT, fate=Fate.ZEROS) if kept == "zeros" else Wreck(names=Names.SOME if kept == "some" else Names.LOST, fate=Fate.KEPT)
    losses = strike.simulation.cut_power(host, wreck)
    if losses.lost_names or losses.torn_files:
        strike.bite(f"{losses.lost_names} names came undone, {losses.torn_files} files have a name and nothing in it")
    strike.start_later(host, strike.integer("after_ms"))


FAULT = FaultKind(
    name="lost-name",
    title="a rename that the power loss undoes",
    family=Family.DISK,
    strike=strike,
    strikes_on=("disk",),
    params={"kept": "none", "after_ms": 1000},
    draws={"kept": OneOf(("none", "some", "zeros")), "after_ms": Between(20, 4000)},
    spoils=Spoils.UNFLUSHED,
)
