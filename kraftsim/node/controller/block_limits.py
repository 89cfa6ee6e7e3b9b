"""How many blocks of producer ids a broker may have per second: the limiter that KIP-730's text speaks of, and that no shipped controller has.

A broker that asks in a tight loop makes a record each time. Above the limit it is told so, and not to ask again for a while; others are served.
Source: KIP-730 (rate limiting), KIP-599 for the kind of limit.
"""

from kraftsim.core.quotas.token_bucket import TokenBucket
from kraftsim.node.config import NodeConfig
from kraftsim.world.interface import Clock

BURST_SECONDS = 1


class BlockLimits:
    """A bucket for each broker."""

    def __init__(self, config: NodeConfig, clock: Clock) -> None:
        self._rate = config.producer_id_blocks_per_second
        self._clock = clock
        self._buckets: dict[int, TokenBucket] = {}

    def pause_ms(self, broker_id: int) -> int:
        """Charge a broker for a block and return 0, or return for how long it must be silent; always 0 without a limit."""
        if not self._rate:
            return 0
        now_ms = self._clock.monotonic_ms()
        bucket = self._buckets.setdefault(broker_id, TokenBucket(BURST_SECONDS))
        pause_ms = bucket.pause_ms(self._rate, now_ms)
        if not pause_ms:
            bucket.take(1, self._rate, now_ms)
        return pause_ms
