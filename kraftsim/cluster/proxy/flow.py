"""One direction of one connection: bytes come in at one end and leave at the other, at once as long as nothing is wrong with the link.

Otherwise they wait in a queue, in order, each with the time at which it is due. Whoever sends is held back by TCP once a megabyte waits, or as soon
as the receiver does not read.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from kraftsim.cluster.proxy.conditions import LinkState
from kraftsim.faults.field import Condition

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the proxy)

    from kraftsim.cluster.proxy.frame_stream import FrameStream

QUEUE_MAX_BYTES = 1 << 20
RETRY_SECONDS = 0.0002
"""Until a receiver that is to be reset has taken what was written before."""
TAIL_SHAPE = 1.1
"""Pareto's alpha: this close to 1 the longest delay of a thousand is hundreds of times the usual one."""


class Owner(Protocol):
    """The connection that a flow is one direction of."""

    number: int

    def begin(self) -> None:
        """Connect to the target, if that was not tried yet."""
        ...

    def reset(self) -> None:
        """End both directions at once."""
        ...

    def ended(self) -> None:
        """Hear that a direction is over, everything having been delivered."""
        ...


class Flow:
    """From a source's transport to a target's, which may come later."""

    __slots__ = (
        "_alarm",
        "_alarm_at",
        "_is_blocked",
        "_is_full",
        "_last_due",
        "_loop",
        "_nowhere",
        "_owner",
        "_queue",
        "_random",
        "end_kind",
        "frames",
        "is_over",
        "link",
        "queued_bytes",
        "source",
        "target",
    )

    def __init__(self, owner: Owner, link: LinkState, loop: asyncio.AbstractEventLoop, random: "Random") -> None:
        self._owner = owner
        self._loop = loop
        self._random = random
        self.link = link
        self.source: asyncio.Transport | None = None
        self.target: asyncio.Transport | None = None
        self.frames: FrameStream | None = None
        """Where bytes go first if frames are followed; what passes there comes back through `send`."""
        self._queue: deque[tuple[float, bytes]] = deque()
        self.queued_bytes = 0
        self.end_kind = ""
        """'eof' or 'reset' once the source has ended."""
        self.is_over = False
        self._nowhere: Callable[[int], None] | None = None
        self._last_due = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._is_full = False
        self._is_blocked = False
        """Whether the receiver's side takes no more for the moment."""
        link.flows[self] = None

    def feed(self, data: bytes) -> None:
        """Take what the source sent."""
        if self.frames is None:
            self.send(data)
        elif not self.end_kind:
            self.frames.feed(data)
            self._mind_fullness()

    def send(self, data: bytes) -> None:
        """Pass on what may pass, now or when it is due."""
        if self.link.is_clear and not self._queue and self.target is not None:
            self.target.write(data)
        elif self._nowhere is not None:
            self._nowhere(len(data))
        elif not self.is_over:
            self._enqueue(data)
            self.pump()
            self._mind_fullness()

    def end(self, kind: str) -> None:
        """The source has ended: the target hears of it once everything before was delivered."""
        if self._nowhere is not None:
            self.drop()
            self._owner.ended()
            return
        if not self.end_kind:
            self.end_kind = kind
            if self.frames is not None and not self.frames.is_frozen:
                self.frames.finish()
            elif self.frames is not None and not self.frames.is_under_way:
                self.frames.abandon()
        elif kind == "reset":
            self.end_kind = kind
        self.pump()

    def thaw(self) -> None:
        """Something was decided about the frame that everything waits for."""
        assert self.frames is not None, "only frames are held"
        self.frames.thaw()
        if self.end_kind and not self.frames.is_frozen:
            self.frames.finish()
        self.pump()

    def pump(self) -> None:
        """Deliver what is due and not held."""
        if self.link.holds or self.is_over:
            return
        if self.target is None:
            if (self._queue or self.end_kind) and not self.link.ignores:
                self._owner.begin()
            return
        now = self._loop.time()
        while self._queue and not self._is_blocked:
            due, data = self._queue[0]
            if due > now:
                self._wake_at(due)
                return
            self._queue.popleft()
            self.queued_bytes -= len(data)
            self.target.write(data)
        self._mind_fullness()
        if self.end_kind and not self._queue and not (self.frames is not None and self.frames.kept_bytes):
            self._finish()

    def lead_nowhere(self, on_bytes: Callable[[int], None]) -> None:
        """From now on nobody gets what the source sends, and nobody tells it; `on_bytes` hears how much it was."""
        self._nowhere = on_bytes
        self.target = None
        self._queue.clear()
        self.queued_bytes = 0
        self._mind_fullness()

    def block(self) -> None:
        """The receiver's side is full."""
        self._is_blocked = True
        self._mind_fullness()

    def unblock(self) -> None:
        """The receiver's side takes bytes again."""
        self._is_blocked = False
        self.pump()
        self._mind_fullness()

    def drop(self) -> None:
        """Forget everything; nobody is there any more."""
        self.is_over = True
        self.target = None
        self._queue.clear()
        self.queued_bytes = 0
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self.link.flows.pop(self, None)

    def _finish(self) -> None:
        kind, target = self.end_kind, self.target
        assert target is not None, "what was delivered was delivered to somebody"
        if kind == "reset":
            if target.get_write_buffer_size():
                self._wake_at(self._loop.time() + RETRY_SECONDS)  # a reset would throw away what is not sent yet
                return
            self._owner.reset()
            return
        self.drop()
        if not target.is_closing():
            target.write_eof()
        self._owner.ended()

    def _enqueue(self, data: bytes) -> None:
        link, now = self.link, self._loop.time()
        tail_ms = sum(self._tail_ms(each) for each in link.tails)
        jitter_ms = self._random.random() * link.jitter_ms if link.jitter_ms else 0.0
        due = max(self._last_due, now + (link.latency_ms + jitter_ms + tail_ms) / 1000)
        has_waited = link.bytes_per_second > 0 and link.free_at > due
        pieces = _pieces(data, link.tear, link.torn_reads) if link.tear is not None else [data]
        link.torn_reads += link.tear is not None
        link.touch(self._owner.number, len(data), has_waited=has_waited, is_late=tail_ms > 0, is_torn=len(pieces) > 1)
        for piece in pieces:
            if link.bytes_per_second:
                due = link.free_at = max(due, link.free_at) + len(piece) / link.bytes_per_second
            self._queue.append((due, piece))
            if link.tear is not None:
                due += self._random.random() * link.tear.gap_us / 1_000_000
        self._last_due = due
        self.queued_bytes += len(data)

    def _tail_ms(self, condition: Condition) -> float:
        if self._random.random() * 1000 >= condition.tail_permille:
            return 0.0
        return float(min(condition.tail_scale_ms / (1.0 - self._random.random()) ** (1 / TAIL_SHAPE), condition.tail_longest_ms))

    def _wake_at(self, due: float) -> None:
        if self._alarm is None or self._alarm_at > due:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm, self._alarm_at = self._loop.call_at(due, self._woken), due

    def _woken(self) -> None:
        self._alarm = None
        self.pump()

    def _mind_fullness(self) -> None:
        """Let the source be read, or not."""
        waiting = self.queued_bytes + (self.frames.kept_bytes if self.frames is not None else 0)
        is_full = self._is_blocked or waiting > QUEUE_MAX_BYTES
        if is_full == self._is_full or self.source is None:
            return
        self._is_full = is_full
        if not self.source.is_closing():
            act: Callable[[], None] = self.source.pause_reading if is_full else self.source.resume_reading
            act()


def _pieces(data: bytes, tear: Condition, torn_reads: int) -> list[bytes]:
    """Cut what was written together; the place of `tears_everywhere` moves on by a byte with every read of the link."""
    if tear.tears_everywhere:
        place = torn_reads % len(data)
        return [data[:place], data[place:]] if place else [data]
    ends = [*list(range(tear.piece_bytes, len(data), tear.piece_bytes))[: tear.pieces_max - 1], len(data)]
    return [data[start:end] for start, end in pairwise((0, *ends))]
