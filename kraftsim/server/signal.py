"""Wakes a single waiting task: an asyncio.Event for one waiter, at half the cost."""

import asyncio


class Signal:
    """A `set` while the task is busy is not lost, and several meanwhile wake it once."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the task."""
        if not self._is_set:
            self._is_set = True
            waiter = self._waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until it is set, and reset it."""
        if not self._is_set:
            assert self._waiter is None, "one task waits"
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                self._waiter = None
        self._is_set = False
