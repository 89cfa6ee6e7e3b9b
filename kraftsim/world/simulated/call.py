"""The entries of the simulated loop: callbacks, and tasks and futures with a hash that is a number
and not an address.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from kraftsim.world.simulated.host import Process

T = TypeVar("T")
NANOSECONDS = 1_000_000_000


class NumberingLoop(Protocol):
    """The loop of sequenced futures and tasks."""

    def take_number(self) -> int:
        """Return the next number."""
        ...


class ScheduledCall(Struct, eq=False):
    """A callback of one process, to run now or at a virtual time.

    Replaces asyncio's two kinds of handles; a struct, because there are many.
    """

    _callback: Callable[..., object]
    _args: tuple[object, ...]
    _context: Context
    _process: "Process"
    _nanosecond: int
    _cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the callback."""
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]  # as asyncio does, to release references

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        return self._cancelled

    def when(self) -> float:
        """Return the virtual time of the callback in seconds."""
        return self._nanosecond / NANOSECONDS

    def __repr__(self) -> str:
        return f"<call {self._callback!r} at {self._nanosecond} ns>"

    def __hash__(self) -> int:
        return self._nanosecond


class SequencedFuture(asyncio.Future[T]):
    """A future that sets and dictionaries keep in the same order in every process: its hash is the
    number of its first use as a key.
    """

    _number: int

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number = _loop_of(self).take_number()
            return self._number


class SequencedTask(asyncio.Task[T]):
    """A task with a hash like that of SequencedFuture; it knows the process that it belongs to."""

    _number: int
    process: "Process"

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number = _loop_of(self).take_number()
            return self._number


def _loop_of(future: "asyncio.Future[T]") -> NumberingLoop:
    loop: NumberingLoop = future.get_loop()  # type: ignore[assignment]  # the only loop that creates these
    return loop
