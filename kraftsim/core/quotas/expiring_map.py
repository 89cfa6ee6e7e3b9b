"""Per-client measurements. Clients choose their ids, so unused ones are removed after an hour.

Source: kafka.server.ClientQuotaManager, ControllerMutationQuotaManager
(ClientQuotaManagerConfig.InactiveSensorExpirationTimeSeconds).
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar


class Measured(Protocol):
    """A rate or a bucket."""

    @property
    def last_ms(self) -> int:
        """The time of the last use."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Measured)
IDLE_MS: Final = 3_600_000
TIDY_MIN: Final = 1000
"""With fewer entries expiry is not checked."""


class ExpiringMap(Generic[K, V]):
    """One V for each key.

    Expiry visits all entries, so it runs when their number has doubled since the last run.
    """

    __slots__ = ("_found", "_new", "_tidy_at")

    def __init__(self, new: Callable[[], V]) -> None:
        self._new = new
        self._found: dict[K, V] = {}
        self._tidy_at = TIDY_MIN

    def __len__(self) -> int:
        return len(self._found)

    def of(self, key: K, now_ms: int) -> V:
        """Return the value of a key, a new one if there is none."""
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= self._tidy_at:
                self._found = {
                    known: each
                    for known, each in self._found.items()
                    if now_ms - each.last_ms < IDLE_MS
                }
                self._tidy_at = max(2 * len(self._found), TIDY_MIN)
            found = self._found[key] = self._new()
        return found

    def clear(self) -> None:
        """Remove all."""
        self._found.clear()
        self._tidy_at = TIDY_MIN
