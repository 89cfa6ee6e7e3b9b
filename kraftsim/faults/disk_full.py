"""A disk takes no more bytes for a while: a write is refused, after a part of it was written.

`after_bytes` says how many more bytes are taken first, of a class of files or of all: so the refusal comes at any byte of any write.
"""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.disk_faults import Full


def strike(strike: Strike) -> None:
    """Fill the target's disk."""
    full = strike.simulation.host(strike.target).platter.faults.full
    after_bytes = strike.integer("after_bytes")
    ailment = Full(kind=strike.file_class(), room_bytes=None if after_bytes < 0 else after_bytes, bite=strike.bite)
    full.append(ailment)
    strike.lasting(lambda: full.remove(ailment), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="disk-full",
    title="a disk without space",
    family=Family.DISK,
    strike=strike,
    params={"duration_ms": 10_000, "file_class": None, "after_bytes": -1},
    draws={
        "duration_ms": Between(200, 3000),
        "file_class": OneOf((None, "metadata-log", "quorum-state", "checkpoint")),
        "after_bytes": OneOf((-1, 0, 1, 60, 61, 200, 1000)),
    },
)
