"""What is measured of clients that share a limit. Clients choose their ids, so that it is forgotten once it was not used for an hour.

Source: kafka.server.ClientQuotaManager, ControllerMutationQuotaManager (ClientQuotaManagerConfig.InactiveSensorExpirationTimeSeconds).
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar


class Measured(Protocol):
    """A rate or a bucket."""

    @property
    def last_ms(self) -> int:
        """When it was used last."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Measured)
IDLE_MS: Final = 3_600_000
TIDY_MIN: Final = 1000
"""Fewer are not worth a look at all of them."""


class UsedLately(Generic[K, V]):
    """One V for each key. To forget some takes a look at all, so that it waits until they are twice as many as the last look has left."""

    __slots__ = ("_found", "_new", "_tidy_at")

    def __init__(self, new: Callable[[], V]) -> None:
        self._new = new
        self._found: dict[K, V] = {}
        self._tidy_at = TIDY_MIN

    def __len__(self) -> int:
        return len(self._found)

    def of(self, key: K, now_ms: int) -> V:
        """Return what belongs to a key; it is new if there is none."""
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= self._tidy_at:
                self._found = {known: each for known, each in self._found.items() if now_ms - each.last_ms < IDLE_MS}
                self._tidy_at = max(2 * len(self._found), TIDY_MIN)
            found = self._found[key] = self._new()
        return found

    def clear(self) -> None:
        """Forget all."""
        self._found.clear()
        self._tidy_at = TIDY_MIN
