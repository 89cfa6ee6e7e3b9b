"""Quotas for copies to remote storage and for consumers' reads from it; both are dynamic configs.

A copy over the quota waits; the whole segment is recorded before its copy starts. A read over the
quota returns no records for now; it is recorded afterwards.
Source: KIP-956, org.apache.kafka.server.log.remote.quota.RLMQuotaManager, RemoteLogManager (3.9).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.server.rules_quotas import SteadyRate
from kraftsim.world.interface import Clock

COPY: Final = "remote.log.manager.copy.max.bytes.per.second"
FETCH: Final = "remote.log.manager.fetch.max.bytes.per.second"
LOOK_MS: Final = 1000
"""The longest wait before the quota is checked again, because it may have been raised
(RemoteLogManager.quotaTimeout).
"""


class RemoteQuota:
    """One of the two quotas. `settings()` returns the current broker configuration."""

    def __init__(
        self,
        key: str,
        *,
        windows: int,
        window_seconds: int,
        settings: Callable[[], BrokerSettings],
        clock: Clock,
    ) -> None:
        self._key = key
        self._settings = settings
        self._clock = clock
        self._rate = SteadyRate(windows, window_seconds * 1000)

    def pause_ms(self) -> int:
        """Return the time until the rate is below the quota; 0 if it is."""
        limit = self._limit
        return 0 if limit is None else self._rate.pause_ms(limit, self._clock.monotonic_ms())

    def record(self, size_bytes: int) -> None:
        """Record transferred bytes."""
        self._rate.record(size_bytes, self._clock.monotonic_ms())

    async def wait(self) -> None:
        """Wait until the rate is below the quota."""
        while pause_ms := self.pause_ms():
            await asyncio.sleep(min(pause_ms, LOOK_MS) / 1000)

    @property
    def _limit(self) -> int | None:
        """Bytes per second; None in releases before 3.8, which do not have the config and ignore it
        in properties.
        """
        settings = self._settings()
        limit = settings.value(self._key) if self._key in settings.tables.broker_defaults else None
        return None if limit is None else int(limit)
