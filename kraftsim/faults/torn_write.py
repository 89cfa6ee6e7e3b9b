"""A host loses power in the middle of a write: some sectors of it are durable and some are not, in any order.

All file names are kept, so that torn files are read; see `lost-name` for the opposite.
"""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf, Spoils
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.inode import Fate
from kraftsim.world.simulated.platter import Names, Wreck


def strike(injection: Strike) -> None:
    """Power off the host now and restart it later; it is effective if a part of an unflushed write is durable."""
    host = injection.simulation.host(injection.target)
    if not host.is_alive:
        return
    fate = Fate[(injection.text("shape") or "holes").upper()]
    losses = injection.simulation.cut_power(host, Wreck(names=Names.KEPT, fate=fate))
    if losses.torn_files:
        injection.bite(f"{losses.torn_files} files were torn, {losses.lost_bytes} bytes differ from what was written")
    injection.start_later(host, injection.integer("after_ms"))


FAULT = FaultKind(
    name="torn-write",
    title="a write torn by a power loss",
    family=Family.DISK,
    strike=strike,
    strikes_on=("disk",),
    params={"shape": "holes", "after_ms": 1000},
    draws={"shape": OneOf(("prefix", "holes", "zeros")), "after_ms": Between(20, 4000)},
    spoils=Spoils.UNFLUSHED,
)
