"""Flushes do not return for a while, without an error: a drive that retries, a controller that
resets its bus.
"""

from kraftsim.lab.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated.disk_faults import StuckFlush


def inject(injection: Injection) -> None:
    """Hold every flush of a class of files that begins from now on, and complete them all when the
    fault is over.
    """
    stuck = injection.simulation.host(injection.target).durable.faults.stuck
    ailment = StuckFlush(kind=injection.file_class(), record_effect=injection.record_effect)
    stuck.append(ailment)

    def release() -> None:
        stuck.remove(ailment)
        ailment.release()

    injection.lasting(release, injection.integer("duration_ms"))


FAULT = FaultKind(
    name="stuck-flush",
    title="a flush that does not return",
    family=Family.DISK,
    inject=inject,
    params={"file_class": None, "duration_ms": 5000},
    draws={
        "file_class": OneOf((None, "metadata-log", "quorum-state", "checkpoint", "partition-log")),
        "duration_ms": Between(300, 6000),
    },
)
