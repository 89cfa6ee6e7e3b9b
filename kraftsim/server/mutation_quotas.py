"""Quotas on created, added and deleted partitions per second (controller_mutation_rate).

Clients that support THROTTLING_QUOTA_EXCEEDED are refused per topic once they exceed their quota;
older clients are served, and throttled. A topic that is refused for another reason is credited
back.
Source: KIP-599, kafka.server.ControllerMutationQuotaManager.
"""

from collections.abc import Callable

from kraftsim.metadata.rules_registries import Registries
from kraftsim.server.call import Call
from kraftsim.server.config import NodeConfig
from kraftsim.server.rules_quotas import ClientLimits, ExpiringMap, Limit, Sharers, TokenBucket
from kraftsim.world.interface import Clock

CONTROLLER_MUTATIONS = "controller_mutation_rate"
QUOTA_EXCEEDED = "The throttling quota has been exceeded."


class Allowance:
    """The remaining quota of one request. `pause_ms` is the throttle time of its client."""

    def __init__(
        self, bucket: TokenBucket | None, rate: float, clock: Clock, *, is_strict: bool
    ) -> None:
        self._bucket = bucket
        self._rate = rate
        self._clock = clock
        self._is_strict = is_strict
        self.pause_ms = 0

    def admits(self, partition_count: int) -> bool:
        """Charge for partitions, and return whether they may be created or deleted."""
        bucket = self._bucket
        if bucket is None:
            return True
        now_ms = self._clock.monotonic_ms()
        if self._is_strict and bucket.tokens(self._rate, now_ms) < 0:
            self.pause_ms = bucket.pause_ms(self._rate, now_ms)
            return False
        bucket.take(partition_count, self._rate, now_ms)
        if not self._is_strict:
            self.pause_ms = bucket.pause_ms(self._rate, now_ms)
        return True

    def give_back(self, partition_count: int) -> None:
        """Credit partitions that were not created or deleted."""
        if self._bucket is not None:
            self._bucket.take(-partition_count, self._rate, self._clock.monotonic_ms())


class MutationQuotas:
    """The token buckets of all clients with such quotas."""

    def __init__(
        self, config: NodeConfig, clock: Clock, registries: Callable[[], Registries]
    ) -> None:
        seconds = config.controller_quota_window_num * config.controller_quota_window_size_seconds
        self._clock = clock
        self._registries = registries
        self._buckets: ExpiringMap[Sharers, TokenBucket] = ExpiringMap(lambda: TokenBucket(seconds))
        self._limits = ClientLimits(())
        self._seen: tuple[Registries, int] | None = None
        """The registries that the limits were read from, and their change count."""

    def allowance(self, call: Call, *, is_strict: bool) -> Allowance:
        """Return the allowance of a request."""
        limit = self._limit(call)
        if limit is None:
            return Allowance(None, 0.0, self._clock, is_strict=is_strict)
        bucket = self._buckets.of(limit.sharers, self._clock.monotonic_ms())
        return Allowance(bucket, limit.value, self._clock, is_strict=is_strict)

    def _limit(self, call: Call) -> Limit | None:
        registries = self._registries()
        if (
            self._seen is None
            or self._seen[0] is not registries
            or self._seen[1] != registries.quota_changes
        ):
            self._seen = registries, registries.quota_changes
            self._limits = ClientLimits(registries.quotas.records())
        limits = self._limits
        return (
            limits.find(CONTROLLER_MUTATIONS, call.principal.name, call.client_id or "")
            if limits
            else None
        )
