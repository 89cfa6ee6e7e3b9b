"""A disk is full for a while: a write fails after a part of it was written.

`after_bytes` is how many more bytes are accepted first, of a class of files or of all: so a write
can fail at any byte.
"""

from kraftsim.lab.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated.disk_faults import Full


def inject(injection: Injection) -> None:
    """Fill the target's disk."""
    full = injection.simulation.host(injection.target).durable.faults.full
    after_bytes = injection.integer("after_bytes")
    ailment = Full(
        kind=injection.file_class(),
        room_bytes=None if after_bytes < 0 else after_bytes,
        record_effect=injection.record_effect,
    )
    full.append(ailment)
    injection.lasting(lambda: full.remove(ailment), injection.integer("duration_ms"))


FAULT = FaultKind(
    name="disk-full",
    title="a full disk",
    family=Family.DISK,
    inject=inject,
    params={"duration_ms": 10_000, "file_class": None, "after_bytes": -1},
    draws={
        "duration_ms": Between(200, 3000),
        "file_class": OneOf((None, "metadata-log", "quorum-state", "checkpoint")),
        "after_bytes": OneOf((-1, 0, 1, 60, 61, 200, 1000)),
    },
)
