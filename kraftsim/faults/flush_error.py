"""A disk fails to flush, and drops the dirty flags of its pages: a second flush succeeds and makes nothing durable (fsyncgate)."""

from kraftsim.faults.fault import Family, FaultKind, OneOf, Spoils
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.disk_faults import FlushRefusal


def strike(injection: Strike) -> None:
    """Fail the next flushes of the target's disk, of all files or of a class of files."""
    refusals = injection.simulation.host(injection.target).platter.faults.refusals
    ailment = FlushRefusal(kind=injection.file_class(), times=injection.integer("times"), bite=injection.bite)
    refusals.append(ailment)
    injection.lasting(lambda: refusals.remove(ailment), injection.integer("duration_ms"))


FAULT = FaultKind(
    name="flush-error",
    title="a disk that fails to flush",
    family=Family.DISK,
    strike=strike,
    params={"times": 1, "file_class": None, "duration_ms": 0},
    draws={"file_class": OneOf((None, "metadata-log", "quorum-state", "checkpoint"))},
    spoils=Spoils.TRUST,
)
