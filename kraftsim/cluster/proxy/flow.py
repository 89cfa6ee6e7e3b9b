"""One direction of one connection: bytes are forwarded from one end to the other at once, unless a
condition is imposed on the link.

Otherwise they wait in a queue, in order, each with the time at which it is due. TCP holds the
sender back once a megabyte is queued, or as soon as the receiver does not read.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from kraftsim.cluster.proxy.conditions import LinkState
from kraftsim.lab.faults.field import Condition

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the proxy)

    from kraftsim.cluster.proxy.frame_stream import FrameStream

QUEUE_MAX_BYTES = 1 << 20
RETRY_SECONDS = 0.0002
"""Retry interval until a receiver has read everything before its connection is reset."""
TAIL_SHAPE = 1.1
"""Pareto's alpha: this close to 1 the longest delay of a thousand is hundreds of times the usual
one.
"""


class FlowOwner(Protocol):
    """The connection that a flow is one direction of."""

    number: int

    def begin(self) -> None:
        """Connect to the target, if no attempt was made yet."""
        ...

    def reset(self) -> None:
        """End both directions at once."""
        ...

    def ended(self) -> None:
        """Called when a direction has ended, after everything was delivered."""
        ...


class Flow:
    """From a source's transport to a target's, which may be connected later."""

    __slots__ = (
        "_alarm",
        "_alarm_at",
        "_is_blocked",
        "_is_full",
        "_is_held_back",
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

    def __init__(
        self, owner: FlowOwner, link: LinkState, loop: asyncio.AbstractEventLoop, random: "Random"
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._random = random
        self.link = link
        self.source: asyncio.Transport | None = None
        self.target: asyncio.Transport | None = None
        self.frames: FrameStream | None = None
        """Receives the bytes first if frames are parsed; what passes it returns through `send`."""
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
        """Whether writing to the receiver is paused."""
        self._is_held_back = False
        link.flows[self] = None

    def feed(self, data: bytes) -> None:
        """Accept bytes of the source."""
        if self.frames is None:
            self.send(data)
        elif not self.end_kind:
            self.frames.feed(data)
            self._mind_fullness()

    def send(self, data: bytes) -> None:
        """Forward bytes, now or when they are due."""
        if self.link.is_clear and not self._queue and self.target is not None:
            self.target.write(data)
        elif self._nowhere is not None:
            self._nowhere(len(data))
        elif not self.is_over:
            self._enqueue(data)
            self.pump()
            self._mind_fullness()

    def end(self, kind: str) -> None:
        """The source has ended: the target is notified once everything before was delivered."""
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
        """There is a decision about the held frame at the front."""
        assert self.frames is not None, "only frames are held"
        self.frames.thaw()
        if self.end_kind and not self.frames.is_frozen:
            self.frames.finish()
        self.pump()

    def pump(self) -> None:
        """Deliver bytes that are due and not held."""
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
        if (
            self.end_kind
            and not self._queue
            and not (self.frames is not None and self.frames.kept_bytes)
        ):
            self._finish()

    def lead_nowhere(self, on_bytes: Callable[[int], None]) -> None:
        """Discard from now on what the source sends, without an error to it; `on_bytes` receives
        the number of bytes.
        """
        self._nowhere = on_bytes
        self.target = None
        self._queue.clear()
        self.queued_bytes = 0
        self._mind_fullness()

    def block(self) -> None:
        """The write buffer of the receiver is full."""
        self._is_blocked = True
        self._mind_fullness()

    def unblock(self) -> None:
        """The write buffer of the receiver has drained."""
        self._is_blocked = False
        self.pump()
        self._mind_fullness()

    def hold_back(self, is_held_back: bool) -> None:
        """Read no more from the source until a recorder has caught up."""
        self._is_held_back = is_held_back
        self._mind_fullness()

    def drop(self) -> None:
        """Discard everything; both ends are gone."""
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
        assert target is not None, "bytes are delivered to a target"
        if kind == "reset":
            if target.get_write_buffer_size():
                self._wake_at(
                    self._loop.time() + RETRY_SECONDS
                )  # a reset would discard unsent bytes
                return
            self._owner.reset()
            return
        self.drop()
        if not target.is_closing() and target.can_write_eof():
            target.write_eof()
        elif not target.is_closing():
            target.close()  # TLS has no half-closed connections
        self._owner.ended()

    def _enqueue(self, data: bytes) -> None:
        link, now = self.link, self._loop.time()
        tail_ms = sum(self._tail_ms(each) for each in link.tails)
        jitter_ms = self._random.random() * link.jitter_ms if link.jitter_ms else 0.0
        due = max(self._last_due, now + (link.latency_ms + jitter_ms + tail_ms) / 1000)
        has_waited = link.bytes_per_second > 0 and link.free_at > due
        pieces = _pieces(data, link.tear, link.torn_reads) if link.tear is not None else [data]
        link.torn_reads += link.tear is not None
        link.touch(
            self._owner.number,
            len(data),
            has_waited=has_waited,
            is_late=tail_ms > 0,
            is_torn=len(pieces) > 1,
        )
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
        return float(
            min(
                condition.tail_scale_ms / (1.0 - self._random.random()) ** (1 / TAIL_SHAPE),
                condition.tail_longest_ms,
            )
        )

    def _wake_at(self, due: float) -> None:
        if self._alarm is None or self._alarm_at > due:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm, self._alarm_at = self._loop.call_at(due, self._woken), due

    def _woken(self) -> None:
        self._alarm = None
        self.pump()

    def _mind_fullness(self) -> None:
        """Pause or resume reading from the source."""
        waiting = self.queued_bytes + (self.frames.kept_bytes if self.frames is not None else 0)
        is_full = self._is_blocked or self._is_held_back or waiting > QUEUE_MAX_BYTES
        if is_full == self._is_full or self.source is None:
            return
        self._is_full = is_full
        if not self.source.is_closing():
            act: Callable[[], None] = (
                self.source.pause_reading if is_full else self.source.resume_reading
            )
            act()


def _pieces(data: bytes, tear: Condition, torn_reads: int) -> list[bytes]:
    """Split what was written at once; with `tears_everywhere` the split point advances by a byte
    with every read of the link.
    """
    if tear.tears_everywhere:
        place = torn_reads % len(data)
        return [data[:place], data[place:]] if place else [data]
    ends = [
        *list(range(tear.piece_bytes, len(data), tear.piece_bytes))[: tear.pieces_max - 1],
        len(data),
    ]
    return [data[start:end] for start, end in pairwise((0, *ends))]
