"""A disk refuses to flush, and forgets which pages were dirty: a second flush succeeds and makes nothing durable (fsyncgate)."""

from kraftsim.faults.fault import Family, FaultKind, Spoils
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated import FileClass


def strike(strike: Strike) -> None:
    """Refuse the next flushes of the target's disk, of all files or of a class of files."""
    faults = strike.simulation.host(strike.target).platter.faults
    file_class = strike.text("file_class")
    faults.flush_errors += strike.integer("times")
    faults.flush_error_class = FileClass(file_class) if file_class is not None else None
    faults.flush_error = strike.bite

    def heal() -> None:
        faults.flush_errors = 0

    strike.lasting(heal, strike.integer("duration_ms"))


FAULT = FaultKind(
    name="flush-error",
    title="a disk that refuses to flush",
    family=Family.DISK,
    strike=strike,
    params={"times": 1, "file_class": None, "duration_ms": 0},
    spoils=Spoils.TRUST,
)
