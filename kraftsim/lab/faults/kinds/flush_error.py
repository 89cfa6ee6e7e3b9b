"""A disk fails to flush, and drops the dirty flags of its pages: a second flush succeeds and makes
nothing durable (fsyncgate).
"""

from kraftsim.lab.faults.fault import DataLoss, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated.disk_faults import FlushRefusal


def inject(injection: Injection) -> None:
    """Fail the next flushes of the target's disk, of all files or of a class of files."""
    refusals = injection.simulation.host(injection.target).durable.faults.refusals
    ailment = FlushRefusal(
        kind=injection.file_class(),
        times=injection.integer("times"),
        record_effect=injection.record_effect,
    )
    refusals.append(ailment)
    injection.lasting(lambda: refusals.remove(ailment), injection.integer("duration_ms"))


FAULT = FaultKind(
    name="flush-error",
    title="a disk that fails to flush",
    family=Family.DISK,
    inject=inject,
    params={"times": 1, "file_class": None, "duration_ms": 0},
    draws={"file_class": OneOf((None, "metadata-log", "quorum-state", "checkpoint"))},
    data_loss=DataLoss.TRUST,
)
