"""A preempted thread: code that reaches a yield point is not scheduled again for a while, and all
other code of its process runs on.
"""

import asyncio
from collections.abc import Callable, Mapping

from kraftsim.world.interface import YieldPoint


class Preemption:
    """Preempts the next threads that reach a yield point, `times` of them, for `seconds` each."""

    def __init__(
        self, seconds: float, times: int, on_preempted: Callable[[YieldPoint], object]
    ) -> None:
        """`on_preempted` is called with the yield point of each thread that must wait."""
        self._seconds = seconds
        self._times = times
        self._on_preempted = on_preempted
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_over(self) -> bool:
        """Whether no more thread is preempted."""
        return self._times <= 0

    def preempt(self, place: YieldPoint) -> "asyncio.Future[None]":
        """Return what the thread that reached a yield point has to wait for."""
        self._times -= 1
        loop = asyncio.get_running_loop()
        scheduled: asyncio.Future[None] = loop.create_future()
        loop.call_later(self._seconds, _schedule, scheduled)
        self._waiting.append(scheduled)
        self._on_preempted(place)
        return scheduled

    def end(self) -> None:
        """Schedule all waiting threads now, and preempt no more."""
        self._times = 0
        for scheduled in self._waiting:
            _schedule(scheduled)
        self._waiting.clear()


def _schedule(scheduled: "asyncio.Future[None]") -> None:
    if not scheduled.done():
        scheduled.set_result(None)


class Preemptions:
    """The preemptions of one host, by yield point; under None those at any yield point."""

    def __init__(self) -> None:
        self._armed: dict[YieldPoint | None, list[Preemption]] = {}
        self.is_armed = False
        """Whether a thread may be preempted: an attribute, because every yield point reads it."""

    def add(self, place: YieldPoint | None, preemption: Preemption) -> None:
        """Preempt the threads that reach a place from now on; None: any place."""
        self._armed.setdefault(place, []).append(preemption)
        self.is_armed = True

    def remove(self, place: YieldPoint | None, preemption: Preemption) -> None:
        """Preempt no more by this one, and schedule the threads that wait for it."""
        preemption.end()
        self._drop(place, preemption)

    def at(self, place: YieldPoint) -> "asyncio.Future[None] | None":
        """Return what a thread at a place must wait for; None: it goes on."""
        for key in (place, None):
            for preemption in self._armed.get(key, ()):
                scheduled = preemption.preempt(place)
                if preemption.is_over:
                    self._drop(key, preemption)
                return scheduled
        return None

    def _drop(self, place: YieldPoint | None, preemption: Preemption) -> None:
        armed: Mapping[YieldPoint | None, list[Preemption]] = self._armed
        if preemption in armed.get(place, ()):
            armed[place].remove(preemption)
            if not armed[place]:
                del self._armed[place]
                self.is_armed = bool(self._armed)
