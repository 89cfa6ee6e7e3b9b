"""Some bytes of a class of files cannot be read for a while: every read that includes them fails.

A node exits, as Kafka's does when its only log directory fails; after healing it starts on the same
disk without losses.
"""

from kraftsim.lab.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated.disk_faults import BadRange


def inject(injection: Injection) -> None:
    """Fail reads of `bytes` bytes from position `first` on; it is effective when one fails."""
    bad_ranges = injection.simulation.host(injection.target).durable.faults.bad_ranges
    first = injection.integer("first")
    ailment = BadRange(
        kind=injection.file_class(),
        first=first,
        end=first + injection.integer("bytes"),
        record_effect=injection.record_effect,
    )
    bad_ranges.append(ailment)
    injection.lasting(lambda: bad_ranges.remove(ailment), injection.integer("duration_ms"))


FAULT = FaultKind(
    name="read-error",
    title="a disk with read errors",
    family=Family.DISK,
    inject=inject,
    params={"file_class": None, "first": 0, "bytes": 1 << 30, "duration_ms": 5000},
    draws={
        "file_class": OneOf((None, "metadata-log", "partition-log", "checkpoint")),
        "first": OneOf((0, 512, 2048)),
        "bytes": OneOf((512, 1 << 30)),
        "duration_ms": Between(500, 5000),
    },
)
