"""Some bytes of a class of files cannot be read for a while: every read that touches them is refused.

A node goes down, as Kafka's does when its only log directory fails; healed, it starts on the same disk and has lost nothing.
"""

from kraftsim.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.faults.strike import Strike
from kraftsim.world.simulated.disk_faults import BadRange


def strike(strike: Strike) -> None:
    """Refuse reads of `bytes` bytes from position `first` on; it bites when one is refused."""
    bad_ranges = strike.simulation.host(strike.target).platter.faults.bad_ranges
    first = strike.integer("first")
    ailment = BadRange(kind=strike.file_class(), first=first, end=first + strike.integer("bytes"), bite=strike.bite)
    bad_ranges.append(ailment)
    strike.lasting(lambda: bad_ranges.remove(ailment), strike.integer("duration_ms"))


FAULT = FaultKind(
    name="read-error",
    title="a disk that cannot read",
    family=Family.DISK,
    strike=strike,
    params={"file_class": None, "first": 0, "bytes": 1 << 30, "duration_ms": 5000},
    draws={
        "file_class": OneOf((None, "metadata-log", "partition-log", "checkpoint")),
        "first": OneOf((0, 512, 2048)),
        "bytes": OneOf((512, 1 << 30)),
        "duration_ms": Between(500, 5000),
    },
)
