"""Where requests wait: until something happens to one of the keys they watch, or until their time is up.

Source: kafka.server.DelayedOperationPurgatory.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)


class Waiting(Protocol):
    """A request that cannot be answered yet."""

    def try_complete(self) -> bool:
        """Answer if that is possible now, and tell whether it was. Called after each change of a watched key."""
        ...

    def expire(self) -> None:
        """Answer with what there is: the time is up."""
        ...


class Stay(Generic[K]):
    """One request's stay in a purgatory."""

    __slots__ = ("alarm", "is_over", "keys", "may_matter", "number", "waiting")

    def __init__(self, number: int, waiting: Waiting, keys: tuple[K, ...], may_matter: Callable[[K], bool] | None) -> None:
        self.number = number
        self.waiting = waiting
        self.keys = keys
        self.may_matter = may_matter
        self.is_over = False
        self.alarm: asyncio.TimerHandle | None = None


class Purgatory(Generic[K]):
    """Requests by the keys they watch, in the order in which they came."""

    def __init__(self) -> None:
        self._stays: dict[K, dict[int, Stay[K]]] = {}
        self._next_number = 0

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits."""
        return not self._stays

    @property
    def watched_keys(self) -> tuple[K, ...]:
        """The keys that somebody waits for."""
        return tuple(self._stays)

    def admit(self, waiting: Waiting, keys: Iterable[K], timeout_ms: int, may_matter: Callable[[K], bool] | None = None) -> "Stay[K] | None":
        """Let a request wait, unless it can be completed at once (then None). `leave` ends the stay early.

        `may_matter` is for those who watch many keys: whether the change of this one is worth looking at all of them.
        """
        if waiting.try_complete():
            return None
        stay = Stay(self._next_number, waiting, tuple(keys), may_matter)
        self._next_number += 1
        for key in stay.keys:
            self._stays.setdefault(key, {})[stay.number] = stay
        stay.alarm = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._expire, stay)
        return stay

    def check(self, key: K) -> None:
        """Something happened to a key: complete what now can be."""
        watching = self._stays.get(key)
        if watching is None:
            return
        for stay in list(watching.values()):
            if not stay.is_over and (stay.may_matter is None or stay.may_matter(key)) and stay.waiting.try_complete():
                self.leave(stay)

    def leave(self, stay: "Stay[K]") -> None:
        """End a stay without an answer: it was given already, or nobody wants it any more."""
        if stay.is_over:
            return
        stay.is_over = True
        if stay.alarm is not None:
            stay.alarm.cancel()
            stay.alarm = None
        for key in stay.keys:
            watching = self._stays.get(key, {})
            watching.pop(stay.number, None)
            if not watching:
                self._stays.pop(key, None)

    def close(self) -> None:
        """Forget everybody; the node goes down."""
        for watching in list(self._stays.values()):
            for stay in list(watching.values()):
                self.leave(stay)

    def _expire(self, stay: "Stay[K]") -> None:
        if not stay.is_over:
            self.leave(stay)
            stay.waiting.expire()
