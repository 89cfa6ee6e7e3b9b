"""Limits producer-id block allocations per broker and second: the rate limit that KIP-730
describes, and that no released controller implements.

A broker that allocates in a tight loop writes a record each time. Above the limit it receives an
error with a throttle time; other brokers are served.
Source: KIP-730 (rate limiting), KIP-599 for the kind of limit.
"""

from kraftsim.server.config import NodeConfig
from kraftsim.server.rules_quotas import TokenBucket
from kraftsim.world.interface import Clock

BURST_SECONDS = 1


class BlockLimits:
    """A token bucket for each broker."""

    def __init__(self, config: NodeConfig, clock: Clock) -> None:
        self._rate = config.producer_id_blocks_per_second
        self._clock = clock
        self._buckets: dict[int, TokenBucket] = {}

    def pause_ms(self, broker_id: int) -> int:
        """Charge a broker for a block and return 0, or return the throttle time of a refused
        broker; always 0 without a limit.
        """
        if not self._rate:
            return 0
        now_ms = self._clock.monotonic_ms()
        bucket = self._buckets.setdefault(broker_id, TokenBucket(BURST_SECONDS))
        pause_ms = bucket.pause_ms(self._rate, now_ms)
        if not pause_ms:
            bucket.take(1, self._rate, now_ms)
        return pause_ms
