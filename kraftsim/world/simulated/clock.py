"""The clocks of a simulated machine: driven by virtual time, and as wrong as a fault makes them.

The wall clock has an offset and may jump. The monotonic clock never jumps; a drift makes both run too fast or too slow.
"""

from typing import Protocol

NANOSECONDS = 1_000_000_000
NANOSECONDS_PER_MILLISECOND = 1_000_000
PARTS = 1_000_000
FIRST_MOMENT_NS = 1_700_000_000 * NANOSECONDS
"""The wall clock at the beginning of every simulation (2023-11-14): a constant, so that a seed always gives the same timestamps."""


class TrueTime(Protocol):
    """Whoever knows true virtual time: the loop. An attribute, because it is asked for every fact, deadline and delay."""

    now_ns: int


class HostClock:
    """All clocks of one host."""

    __slots__ = ("_local_base_ns", "_offset_ns", "_shift_ns", "_true", "_true_base_ns", "drift_ppm")

    def __init__(self, true: TrueTime) -> None:
        self._true = true
        self._offset_ns = FIRST_MOMENT_NS
        self.drift_ppm = 0
        self._true_base_ns = 0
        self._local_base_ns = 0
        self._shift_ns = 0
        """What the monotonic clock is ahead of true time, as long as it does not drift."""

    def wall_ns(self) -> int:
        """Return nanoseconds since 1970 by this host."""
        return self.monotonic_ns() + self._offset_ns

    def wall_ms(self) -> int:
        """Return milliseconds since 1970 by this host."""
        return (self.monotonic_ns() + self._offset_ns) // NANOSECONDS_PER_MILLISECOND

    def monotonic_ns(self) -> int:
        """Return nanoseconds since the run began by this host."""
        if self.drift_ppm == 0:
            return self._true.now_ns + self._shift_ns
        return self._local_base_ns + (self._true.now_ns - self._true_base_ns) * (PARTS + self.drift_ppm) // PARTS

    def monotonic_ms(self) -> int:
        """Return milliseconds of the monotonic clock."""
        return self.monotonic_ns() // NANOSECONDS_PER_MILLISECOND

    def true_delay_ns(self, local_delay_ns: int) -> int:
        """Return how long a delay of this host's clock takes in true time."""
        return local_delay_ns * PARTS // (PARTS + self.drift_ppm) if self.drift_ppm else local_delay_ns

    def jump(self, by_ns: int) -> None:
        """Set the wall clock forward or, if negative, back."""
        self._offset_ns += by_ns

    def drift(self, drift_ppm: int) -> None:
        """Let the clocks run too fast (positive) or too slow by parts per million, from now on."""
        assert drift_ppm > -PARTS, "a clock does not run backwards"
        self._local_base_ns, self._true_base_ns = self.monotonic_ns(), self._true.now_ns
        self._shift_ns = self._local_base_ns - self._true_base_ns
        self.drift_ppm = drift_ppm
