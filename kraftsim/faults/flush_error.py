"""A disk refuses to flush, and forgets which pages were dirty: a second flush succeeds and makes nothing durable (fsyncgate)."""

from kraftsim.faults.fault import Family, FaultKind, OneOf, Spoils
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.disk_faults import FlushRefusal


def strike(strike: Strike) -> None:
    """Refuse the next flushes of the target's disk, of all files or of a class of files."""
    refusals = strike.simulation.host(strike.target).platter.faults.refusals
    ailment = FlushRefusal(kind=strike.file_class(), times=strike.integer("times"), bite=strike.bite)
    refusals.append(ailment)
    strike.lasting(lambda: refusals.remove(ailment), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="flush-error",
    title="a disk that refuses to flush",
    family=Family.DISK,
    strike=strike,
    params={"times": 1, "file_class": None, "duration_ms": 0},
    draws={"file_class": OneOf((None, "metadata-log", "quorum-state", "checkpoint"))},
    spoils=Spoils.TRUST,
)
