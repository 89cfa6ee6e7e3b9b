"""A limit that may be overdrawn once: tokens come at a rate, up to what a bucket holds, and whoever takes more than there are waits for the rest.

Source: KIP-599, org.apache.kafka.common.metrics.stats.TokenBucket, kafka.server.ControllerMutationQuotaManager.
"""

import math


class TokenBucket:
    """Begins full."""

    __slots__ = ("_seconds", "_tokens", "_updated_ms")

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        """It holds what comes in so many seconds."""
        self._tokens = math.inf
        self._updated_ms = 0

    @property
    def last_ms(self) -> int:
        """When tokens were looked at or taken last; 0 if they never were."""
        return self._updated_ms

    def tokens(self, rate: float, now_ms: int) -> float:
        """Return how many tokens there are; below zero if it is overdrawn."""
        self._tokens = min(self._tokens + rate * (now_ms - self._updated_ms) / 1000, rate * self._seconds)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, amount: float, rate: float, now_ms: int) -> None:
        """Take tokens, or with a negative amount put them back."""
        self._tokens = min(self.tokens(rate, now_ms) - amount, rate * self._seconds)

    def pause_ms(self, rate: float, now_ms: int) -> int:
        """Return after how many milliseconds it is overdrawn no more; 0 if it is not."""
        return max(math.floor(-self.tokens(rate, now_ms) * 1000 / rate + 0.5), 0)
