"""The simulated environment of a run: speeds of the network and of the disks without faults, read
sizes, and the size of large frames.

Drawn from the seed, because races depend on it. Half of the runs have the default speeds; the
others something between a fast rack and another city, and between a battery-backed cache and a
spinning disk. Frames of a scenario are small and arrive one by one, so half of the runs treat
smaller frames as large, and read as from a kernel: in pieces that begin and end anywhere.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from kraftsim.server.large_frames import LARGE_FRAME_BYTES
from kraftsim.world.simulated.link import NetworkSettings

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the seed)

NANOSECONDS_PER_MICROSECOND = 1000
PER_MILLE = 1000
LATENCIES_US = (30, 300, 1000, 4000)
JITTERS = (0.0, 0.5, 2.0)
"""In parts of the latency."""
TORN_PER_MILLE = (0, 20, 20, 300)
FLUSHES_US = ((50, 200), (500, 2000), (4000, 12_000), (100, 30_000))
LARGE_FRAMES_BYTES = (100, 140, 160, 180, 200, 220, 250, 400)
"""Most requests of scenarios have 60 to 400 bytes: some of them should be large, and some not."""
READS_BYTES = (100, 100, 150, 200, 200, 1000)
LARGE_FRAME_KEY = "kraftsim.large.frame.bytes"
USUAL_SHARE = 0.5


class RunEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The latency of bytes in microseconds, and the maximum of its random part; how many of 1000
    writes arrive in two; the range of flush times.

    Frames above `large_frame_bytes` are received into memory of their own; a read returns up to
    `read_bytes`, or, without it, one whole write.
    """

    latency_us: int = 300
    jitter_us: int = 400
    torn_per_mille: int = 20
    flush_us: tuple[int, int] = (500, 2000)
    large_frame_bytes: int = LARGE_FRAME_BYTES
    read_bytes: int = 0

    @property
    def network(self) -> NetworkSettings:
        """The initial state of all links."""
        return NetworkSettings(
            latency_ns=self.latency_us * NANOSECONDS_PER_MICROSECOND,
            jitter_ns=self.jitter_us * NANOSECONDS_PER_MICROSECOND,
            torn_writes=self.torn_per_mille / PER_MILLE,
            read_bytes=self.read_bytes,
        )

    @property
    def flush_ns(self) -> tuple[int, int]:
        """The duration of a flush on a disk without faults."""
        return self.flush_us[0] * NANOSECONDS_PER_MICROSECOND, self.flush_us[
            1
        ] * NANOSECONDS_PER_MICROSECOND

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of every node that depend on it."""
        return (
            {}
            if self.large_frame_bytes == LARGE_FRAME_BYTES
            else {LARGE_FRAME_KEY: str(self.large_frame_bytes)}
        )


def draw_run_environment(random: "Random", frames: "Random") -> RunEnvironment:
    """Draw the environment of one run; the size of large frames is from a separate stream."""
    around = RunEnvironment()
    if frames.random() >= USUAL_SHARE:
        around = RunEnvironment(
            large_frame_bytes=frames.choice(LARGE_FRAMES_BYTES),
            read_bytes=frames.choice(READS_BYTES),
        )
    if random.random() < USUAL_SHARE:
        return around
    latency_us = random.choice(LATENCIES_US)
    return replace(
        around,
        latency_us=latency_us,
        jitter_us=int(latency_us * random.choice(JITTERS)),
        torn_per_mille=random.choice(TORN_PER_MILLE),
        flush_us=random.choice(FLUSHES_US),
    )
