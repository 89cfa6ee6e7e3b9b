"""A rate over recent windows, and the throttle time that brings it back to its limit.

Source: org.apache.kafka.common.metrics.stats.{SampledStat, Rate, SimpleRate},
kafka.server.QuotaUtils.
"""

import math
from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Window:
    """The amount recorded since a time."""

    started_ms: int
    last_ms: int
    amount: float = 0.0


class WindowedRate:
    """Amounts per second over `window_count` windows of `window_ms`; a younger rate is measured
    over all but one of them.
    """

    __slots__ = ("_window_count", "_window_ms", "_windows")

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._windows: deque[Window] = deque(maxlen=window_count)

    @property
    def last_ms(self) -> int:
        """The time of the last record; 0 without any."""
        return self._windows[-1].last_ms if self._windows else 0

    def record(self, amount: float, now_ms: int) -> None:
        """Record an amount; a negative one reverts a former one."""
        if not self._windows or now_ms - self._windows[-1].started_ms >= self._window_ms:
            self._windows.append(Window(now_ms, now_ms))
        window = self._windows[-1]
        window.amount += amount
        window.last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """Return the amount per second."""
        while (
            self._windows
            and now_ms - self._windows[0].last_ms >= self._window_count * self._window_ms
        ):
            self._windows.popleft()
        return sum(window.amount for window in self._windows) * 1000 / self.span_ms(now_ms)

    def span_ms(self, now_ms: int) -> int:
        """Return the measured time span."""
        elapsed_ms = self._elapsed_ms(now_ms)
        full_count = elapsed_ms // self._window_ms
        missing_count = max(self._window_count - 1 - full_count, 0)
        return elapsed_ms + missing_count * self._window_ms

    def pause_ms(self, limit: float, now_ms: int) -> int:
        """Return the idle milliseconds after which the rate is at its limit; 0 if it is not above
        it.
        """
        rate = self.measure(now_ms)
        return (
            math.floor((rate - limit) / limit * self.span_ms(now_ms) + 0.5) if rate > limit else 0
        )

    def _elapsed_ms(self, now_ms: int) -> int:
        return now_ms - self._windows[0].started_ms if self._windows else 0


class SteadyRate(WindowedRate):
    """Measured since the first record in the windows, and over at least one window: so it does not
    admit ten seconds' worth at once.

    Source: org.apache.kafka.common.metrics.stats.SimpleRate.
    """

    __slots__ = ()

    def span_ms(self, now_ms: int) -> int:
        """Return the measured time span."""
        return max(self._elapsed_ms(now_ms), self._window_ms)
