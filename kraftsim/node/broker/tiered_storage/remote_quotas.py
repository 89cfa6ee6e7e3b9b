"""How fast a broker may copy to its remote store, and how fast consumers may read from there; both can be changed while it runs.

A copy that would be too fast waits, and the whole segment counts before its copy begins. A read that would be too fast gets nothing for now; what was
read counts afterwards.   Source: KIP-956, org.apache.kafka.server.log.remote.quota.RLMQuotaManager, RemoteLogManager (3.9).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kraftsim.core.metadata.broker_configs import BrokerSettings
from kraftsim.core.quotas.windowed_rate import SteadyRate
from kraftsim.world.interface import Clock

COPY: Final = "remote.log.manager.copy.max.bytes.per.second"
FETCH: Final = "remote.log.manager.fetch.max.bytes.per.second"
LOOK_MS: Final = 1000
"""Whoever waits looks again after so long at the latest: the limit may have been lifted (RemoteLogManager.quotaTimeout)."""


class RemoteQuota:
    """One of both. `settings()` are those of the broker now."""

    def __init__(self, key: str, *, windows: int, window_seconds: int, settings: Callable[[], BrokerSettings], clock: Clock) -> None:
        self._key = key
        self._settings = settings
        self._clock = clock
        self._rate = SteadyRate(windows, window_seconds * 1000)

    def pause_ms(self) -> int:
        """Return for how long nothing may be moved; 0: something may."""
        limit = self._limit
        return 0 if limit is None else self._rate.pause_ms(limit, self._clock.monotonic_ms())

    def record(self, size_bytes: int) -> None:
        """Count what is moved."""
        self._rate.record(size_bytes, self._clock.monotonic_ms())

    async def wait(self) -> None:
        """Return when something may be moved."""
        while pause_ms := self.pause_ms():
            await asyncio.sleep(min(pause_ms, LOOK_MS) / 1000)

    @property
    def _limit(self) -> int | None:
        """Bytes per second; None in releases before 3.8, which do not have the setting and ignore it in properties."""
        settings = self._settings()
        limit = settings.value(self._key) if self._key in settings.tables.broker_defaults else None
        return None if limit is None else int(limit)
