"""Delayed requests: they wait for an event on one of the keys they watch, or for their timeout.

Source: kafka.server.DelayedOperationPurgatory.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from kraftsim.world.interface import YieldPoint

K = TypeVar("K", bound=Hashable)


class Waiting(Protocol):
    """A request that cannot be answered yet."""

    def try_complete(self) -> bool:
        """Answer if possible, and return whether it was.

        Called after each change of a watched key.
        """
        ...

    def expire(self) -> None:
        """Answer with what is available: the timeout has expired."""
        ...


class HandOver(Protocol):
    """The part of a node's world that a purgatory needs."""

    def hand_over(self, place: YieldPoint, work: Callable[[], object]) -> None:
        """Do work that another thread of Kafka may do later."""
        ...


class DelayedOperation(Generic[K]):
    """A delayed operation: one request in a purgatory."""

    __slots__ = (
        "alarm",
        "is_over",
        "is_tried",
        "keys",
        "may_matter",
        "must_try_again",
        "number",
        "waiting",
    )

    def __init__(
        self,
        number: int,
        waiting: Waiting,
        keys: tuple[K, ...],
        may_matter: Callable[[K], bool] | None,
    ) -> None:
        self.number = number
        self.waiting = waiting
        self.keys = keys
        self.may_matter = may_matter
        self.is_over = False
        self.is_tried = False
        """Whether an attempt to complete it is under way."""
        self.must_try_again = False
        """Whether a watched key has changed during this attempt."""
        self.alarm: asyncio.TimerHandle | None = None


class Purgatory(Generic[K]):
    """Delayed requests by the keys they watch, in order of arrival."""

    def __init__(self, world: HandOver) -> None:
        self._world = world
        self._operations: dict[K, dict[int, DelayedOperation[K]]] = {}
        self._next_number = 0

    @property
    def is_empty(self) -> bool:
        """Whether no request waits."""
        return not self._operations

    @property
    def watched_keys(self) -> tuple[K, ...]:
        """The keys with waiting requests."""
        return tuple(self._operations)

    def try_complete_else_watch(
        self,
        waiting: Waiting,
        keys: Iterable[K],
        timeout_ms: int,
        may_matter: Callable[[K], bool] | None = None,
    ) -> "DelayedOperation[K] | None":
        """Try to complete a request, else watch its keys; return None if it was completed.

        `leave` ends the wait early.

        `may_matter` is for requests with many keys: whether a change of this key can complete the
        request.
        """
        if waiting.try_complete():
            return None
        operation = DelayedOperation(self._next_number, waiting, tuple(keys), may_matter)
        self._next_number += 1
        for key in operation.keys:
            self._operations.setdefault(key, {})[operation.number] = operation
        operation.alarm = asyncio.get_running_loop().call_later(
            timeout_ms / 1000, self._expire, operation
        )
        return operation

    def check(self, key: K) -> None:
        """An event occurred on a key: complete the requests that can be completed.

        In Kafka this is done without the lock under which the event occurred, perhaps much later.
        """
        if key in self._operations:
            self._world.hand_over(
                YieldPoint.DELAYED_OPERATION_TRIGGERED, lambda: self._complete(key)
            )

    def _complete(self, key: K) -> None:
        for operation in list(self._operations.get(key, {}).values()):
            if not operation.is_over:
                self._try(operation, key)

    def _try(self, operation: DelayedOperation[K], key: K) -> None:
        """Complete an operation if possible: once, even if the attempt changes a watched key.

        A read that fails takes the partitions of its log directory offline; an append that is
        replicated lets a coordinator append the next one.
        Source: DelayedOperation.safeTryComplete, whose `completed` is set before `onComplete`.
        """
        if operation.is_tried:
            operation.must_try_again = True
            return
        operation.is_tried = True
        try:
            is_complete = (
                operation.may_matter is None or operation.may_matter(key)
            ) and operation.waiting.try_complete()
            while not is_complete and operation.must_try_again and not operation.is_over:
                operation.must_try_again = False
                is_complete = operation.waiting.try_complete()
        finally:
            operation.is_tried = operation.must_try_again = False
        if is_complete:
            self.leave(operation)

    def leave(self, operation: "DelayedOperation[K]") -> None:
        """End a wait without an answer: it was already sent, or is not needed any more."""
        if operation.is_over:
            return
        operation.is_over = True
        if operation.alarm is not None:
            operation.alarm.cancel()
            operation.alarm = None
        for key in operation.keys:
            watching = self._operations.get(key, {})
            watching.pop(operation.number, None)
            if not watching:
                self._operations.pop(key, None)

    def close(self) -> None:
        """Drop all waiting requests; the node is stopping."""
        for watching in list(self._operations.values()):
            for operation in list(watching.values()):
                self.leave(operation)

    def _expire(self, operation: "DelayedOperation[K]") -> None:
        if not operation.is_over:
            self.leave(operation)
            operation.waiting.expire()
