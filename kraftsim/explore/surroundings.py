"""How fast the network and the disks of a run are when nothing is wrong with them: drawn from the seed, for races are decided by it.

Half of the runs have the usual speeds; the others something between a fast rack and another city, and between a battery and a spinning disk.
"""

from typing import TYPE_CHECKING

import msgspec

from kraftsim.world.simulated.link import NetworkSettings

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the seed)

NANOSECONDS_PER_MICROSECOND = 1000
PER_MILLE = 1000
LATENCIES_US = (30, 300, 1000, 4000)
JITTERS = (0.0, 0.5, 2.0)
"""In parts of the latency."""
TORN_PER_MILLE = (0, 20, 20, 300)
FLUSHES_US = ((50, 200), (500, 2000), (4000, 12_000), (100, 30_000))
USUAL_SHARE = 0.5


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Microseconds that bytes take, and what is added to them at random; how many of 1000 writes arrive in two; the shortest and longest flush."""

    latency_us: int = 300
    jitter_us: int = 400
    torn_per_mille: int = 20
    flush_us: tuple[int, int] = (500, 2000)

    @property
    def network(self) -> NetworkSettings:
        """How all links begin."""
        return NetworkSettings(
            latency_ns=self.latency_us * NANOSECONDS_PER_MICROSECOND,
            jitter_ns=self.jitter_us * NANOSECONDS_PER_MICROSECOND,
            torn_writes=self.torn_per_mille / PER_MILLE,
        )

    @property
    def flush_ns(self) -> tuple[int, int]:
        """How long a flush takes on a disk without faults."""
        return self.flush_us[0] * NANOSECONDS_PER_MICROSECOND, self.flush_us[1] * NANOSECONDS_PER_MICROSECOND


def draw_surroundings(random: "Random") -> Surroundings:
    """Draw the surroundings of one run."""
    if random.random() < USUAL_SHARE:
        return Surroundings()
    latency_us = random.choice(LATENCIES_US)
    return Surroundings(
        latency_us=latency_us,
        jitter_us=int(latency_us * random.choice(JITTERS)),
        torn_per_mille=random.choice(TORN_PER_MILLE),
        flush_us=random.choice(FLUSHES_US),
    )
