"""A token bucket that may be overdrawn: tokens are added at a rate, up to the bucket's capacity,
and a client that overdraws it waits for the rest.

Source: KIP-599, org.apache.kafka.common.metrics.stats.TokenBucket,
kafka.server.ControllerMutationQuotaManager.
"""

import math


class TokenBucket:
    """Starts full."""

    __slots__ = ("_seconds", "_tokens", "_updated_ms")

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        """The capacity is the rate times this many seconds."""
        self._tokens = math.inf
        self._updated_ms = 0

    @property
    def last_ms(self) -> int:
        """The time of the last use; 0 if never used."""
        return self._updated_ms

    def tokens(self, rate: float, now_ms: int) -> float:
        """Return the number of tokens; negative if overdrawn."""
        self._tokens = min(
            self._tokens + rate * (now_ms - self._updated_ms) / 1000, rate * self._seconds
        )
        self._updated_ms = now_ms
        return self._tokens

    def take(self, amount: float, rate: float, now_ms: int) -> None:
        """Take tokens, or return them with a negative amount."""
        self._tokens = min(self.tokens(rate, now_ms) - amount, rate * self._seconds)

    def pause_ms(self, rate: float, now_ms: int) -> int:
        """Return the milliseconds until it is not overdrawn any more; 0 if it is not."""
        return max(math.floor(-self.tokens(rate, now_ms) * 1000 / rate + 0.5), 0)
