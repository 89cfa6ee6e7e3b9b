"""Deadlines that are often moved and rarely expire: a heartbeat extends its member's session
without touching the queue.

Source: kafka.server.DelayedOperationPurgatory, as the group coordinator uses it.
"""

import heapq
from enum import IntEnum
from typing import NamedTuple


class TimerKind(IntEnum):
    """What the deadline is for."""

    SESSION = 0
    PENDING_MEMBER = 1
    REBALANCE = 2
    SYNC = 3
    CONSUMER_SESSION = 4
    CONSUMER_REVOCATION = 5
    CONSUMER_JOIN = 6
    """A classic-protocol member has to rejoin."""
    CONSUMER_SYNC = 7
    """A classic-protocol member has to send SyncGroup."""


class TimerKey(NamedTuple):
    """The owner of a deadline; the member is empty for a deadline of the group."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class Timers:
    """Deadlines by key, on the monotonic clock.

    Those of the same millisecond expire in the order in which they were set.
    """

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._queued: dict[TimerKey, int] = {}
        self._queue: list[tuple[int, int, TimerKey]] = []
        self._set_count = 0

    @property
    def next_ms(self) -> int | None:
        """When to check again: not later than the earliest deadline, possibly earlier."""
        return self._queue[0][0] if self._queue else None

    def set(self, key: TimerKey, at_ms: int) -> None:
        """Set or move a deadline."""
        self._deadlines[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def set_if_absent(self, key: TimerKey, at_ms: int) -> None:
        """Set a deadline, unless there is one already."""
        if key not in self._deadlines:
            self.set(key, at_ms)

    def cancel(self, key: TimerKey) -> None:
        """Cancel a deadline."""
        self._deadlines.pop(key, None)

    def take_due(self, now_ms: int) -> TimerKey | None:
        """Remove and return a key whose deadline has expired; None if there is none."""
        while self._queue and self._queue[0][0] <= now_ms:
            at_ms, _, key = heapq.heappop(self._queue)
            if self._queued.get(key) != at_ms:
                continue  # it has since been queued for an earlier time
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
