"""The clocks of a real machine."""

import time

NANOSECONDS_PER_MILLISECOND = 1_000_000


class RealClock:
    """The kernel's clocks.

    `started_ns` is the time of the monotonic clock at which the run began; all processes of a
    machine share that clock.
    """

    __slots__ = ("_started_ns",)

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // NANOSECONDS_PER_MILLISECOND

    def monotonic_ms(self) -> int:
        """Return milliseconds of the monotonic clock."""
        return time.monotonic_ns() // NANOSECONDS_PER_MILLISECOND

    def monotonic_ns(self) -> int:
        """Return nanoseconds since the run began."""
        return time.monotonic_ns() - self._started_ns
