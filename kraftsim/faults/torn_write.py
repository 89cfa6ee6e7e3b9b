"""A host loses its power in the middle of a write: some sectors of it are on the platter and some are not, whatever their order.

Names are all kept, so that what is torn is looked at; see `lost-name` for the opposite.
"""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf, Spoils
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.inode import Fate
from kraftsim.world.simulated.platter import Names, Wreck


def strike(strike: Strike) -> None:
    """Take the power now and start the host again later; it bites if of a write that was not flushed a part is there."""
    host = strike.simulation.host(strike.target)
    if not host.is_alive:
        return
    fate = Fate[(strike.text("shape") or "holes").upper()]
    losses = strike.simulation.cut_power(host, Wreck(names=Names.KEPT, fate=fate))
    if losses.torn_files:
        strike.bite(f"{losses.torn_files} files were torn, {losses.lost_bytes} bytes are not what was written")
    strike.start_later(host, strike.integer("after_ms"))


FAULT = FaultKind(
    name="torn-write",
    title="a write that the power loss has torn",
    family=Family.DISK,
    strike=strike,
    strikes_on=("disk",),
    params={"shape": "holes", "after_ms": 1000},
    draws={"shape": OneOf(("prefix", "holes", "zeros")), "after_ms": Between(20, 4000)},
    spoils=Spoils.UNFLUSHED,
)
