"""Deadlines that move often and pass rarely: a heartbeat moves its member's session ahead without touching the queue.

Source: kafka.server.DelayedOperationPurgatory, as the group coordinator uses it.
"""

import heapq
from enum import IntEnum
from typing import NamedTuple


class TimerKind(IntEnum):
    """What passes."""

    SESSION = 0
    PENDING_MEMBER = 1
    REBALANCE = 2
    SYNC = 3
    CONSUMER_SESSION = 4
    CONSUMER_REVOCATION = 5
    CONSUMER_JOIN = 6
    """A member that speaks the classic protocol is to join again."""
    CONSUMER_SYNC = 7
    """A member that speaks the classic protocol is to ask for its share."""


class TimerKey(NamedTuple):
    """Whose deadline it is; the member is empty where it is the group's own."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class Timers:
    """Deadlines by key, on the monotonic clock. Those of the same millisecond pass in the order in which they were set."""

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._queued: dict[TimerKey, int] = {}
        self._queue: list[tuple[int, int, TimerKey]] = []
        self._set_count = 0

    @property
    def next_ms(self) -> int | None:
        """When to look again: not later than the earliest deadline, perhaps earlier."""
        return self._queue[0][0] if self._queue else None

    def set(self, key: TimerKey, at_ms: int) -> None:
        """Let a deadline be then, and not when it was."""
        self._deadlines[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def set_if_absent(self, key: TimerKey, at_ms: int) -> None:
        """Let a deadline be then, unless there is one already."""
        if key not in self._deadlines:
            self.set(key, at_ms)

    def cancel(self, key: TimerKey) -> None:
        """Let a deadline never pass."""
        self._deadlines.pop(key, None)

    def take_due(self, now_ms: int) -> TimerKey | None:
        """Return a key whose deadline has passed, and forget it; None if there is none."""
        while self._queue and self._queue[0][0] <= now_ms:
            at_ms, _, key = heapq.heappop(self._queue)
            if self._queued.get(key) != at_ms:
                continue  # it was queued for an earlier moment since
            del self._queued[key]
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline <= now_ms:
                del self._deadlines[key]
                return key
            self._push(key, deadline)
        return None

    def _push(self, key: TimerKey, at_ms: int) -> None:
        self._queued[key] = at_ms
        self._set_count += 1
        heapq.heappush(self._queue, (at_ms, self._set_count, key))
