"""Flushes do not return for a while, and nothing is refused: a drive that tries again and again, a controller that resets its bus."""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.disk_faults import StuckFlush


def strike(strike: Strike) -> None:
    """Hold every flush of a class of files that begins from now on, and let them all end when it is over."""
    stuck = strike.simulation.host(strike.target).platter.faults.stuck
    ailment = StuckFlush(kind=strike.file_class(), bite=strike.bite)
    stuck.append(ailment)

    def release() -> None:
        stuck.remove(ailment)
        ailment.release()

    strike.lasting(release, strike.integer("duration_ms"))


FAULT = FaultKind(
    name="stuck-flush",
    title="a flush that does not return",
    family=Family.DISK,
    strike=strike,
    params={"file_class": None, "duration_ms": 5000},
    draws={"file_class": OneOf((None, "metadata-log", "quorum-state", "checkpoint", "partition-log")), "duration_ms": Between(300, 6000)},
)
