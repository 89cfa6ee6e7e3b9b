"""Request quotas (request_percentage) for AllocateProducerIds on a controller: the throttle that Kafka applies to it.

A broker that allocates in a tight loop gets its blocks, and is then throttled. Refusals are not charged,
because the request is inter-node.
Source: KIP-124, kafka.server.{ControllerApis, RequestHandlerHelper, ClientRequestQuotaManager}.
"""

from collections.abc import Callable
from typing import Final

from kraftsim.core.metadata.registries import Registries
from kraftsim.core.quotas.client_limits import ClientLimits, Sharers
from kraftsim.core.quotas.expiring_map import ExpiringMap
from kraftsim.core.quotas.windowed_rate import WindowedRate
from kraftsim.node.call import Call
from kraftsim.node.config import NodeConfig
from kraftsim.node.muting import mute
from kraftsim.world.interface import Clock

REQUEST_PERCENTAGE: Final = "request_percentage"
NS_PER_PERCENT: Final = 10_000_000
"""Of one thread, per second."""


class RequestQuotas:
    """The rates of all clients with such a quota."""

    def __init__(self, config: NodeConfig, clock: Clock, registries: Callable[[], Registries]) -> None:
        self._window_ms = config.quota_window_size_seconds * 1000
        self._clock = clock
        self._registries = registries
        self._limits = ClientLimits(())
        self._rates: ExpiringMap[Sharers, WindowedRate] = ExpiringMap(lambda: WindowedRate(config.quota_window_num, self._window_ms))
        self._seen: tuple[Registries, int] | None = None
        """The registries that the limits were read from, and their change count."""

    def charge(self, call: Call, took_ns: int) -> int:
        """Charge the processing time of a request; mute its client and return the throttle time in milliseconds, or 0."""
        registries = self._registries()
        if self._seen is None or self._seen[0] is not registries or self._seen[1] != registries.quota_changes:
            self._seen = registries, registries.quota_changes
            self._limits = ClientLimits(registries.quotas.records())
            self._rates.clear()
        limit = self._limits.find(REQUEST_PERCENTAGE, call.principal.name, call.client_id or "") if self._limits else None
        if limit is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._rates.of(limit.sharers, now_ms)
        rate.record(took_ns / NS_PER_PERCENT, now_ms)
        pause_ms = min(rate.pause_ms(limit.value, now_ms), self._window_ms)
        if pause_ms > 0:
            mute(call, pause_ms)
        return pause_ms
