"""One direction of a simulated TCP connection: the bytes that were written and have not arrived
yet.

Segments are in one queue, and every arrival takes the oldest of them: whatever happens to a single
arrival, bytes never change their order. An arrival in a partition is lost; when the link is healed
lost arrivals are repeated, as TCP does by retransmission. An arrival at a clogged link waits and is
delivered, in order, once the link is clear. A single pipe can also be held, or discard everything.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from kraftsim.world.simulated.link import EffectRecorder, Link, NetworkSettings

if TYPE_CHECKING:
    from kraftsim.world.simulated.loop import VirtualLoop
    from kraftsim.world.simulated.transport import SimulatedTransport


class SegmentKind(Enum):
    """The type of a segment."""

    DATA = 1
    OPENING = 2
    END = 3
    RESET = 4


DATA = SegmentKind.DATA
"""An attribute of an enumeration costs a function call, and most segments are of this kind."""


class PipeSegment(Struct, eq=False, gc=False):
    """A piece of the stream."""

    kind: SegmentKind
    data: bytes = b""


class Medium(Protocol):
    """The network, as its connections see it."""

    cut_count: int
    """The number of connections that were reset."""

    @property
    def loop(self) -> "VirtualLoop":
        """The loop that carries segments."""
        ...

    @property
    def settings(self) -> NetworkSettings:
        """Delays and limits."""
        ...

    def forget_if_over(self, end: "SimulatedTransport") -> None:
        """Remove a connection once both ends are lost."""
        ...


class Pipe:
    """The direction from one end of a connection to the other."""

    __slots__ = (
        "_clogged_arrivals",
        "_detour",
        "_held",
        "_holds",
        "_last_arrival_ns",
        "_loop",
        "_lost_arrivals",
        "_network",
        "_retransmitting_since",
        "link",
        "queue",
        "source",
        "target",
        "unread_bytes",
    )

    def __init__(
        self,
        network: Medium,
        link: Link,
        source: "SimulatedTransport",
        target: "SimulatedTransport",
    ) -> None:
        self.link = link
        self.source = source
        self.target = target
        self.queue: deque[PipeSegment] = deque()
        self.unread_bytes = 0
        """Written bytes that the other process has not received."""
        self._network = network
        self._loop = network.loop
        self._last_arrival_ns = 0
        self._lost_arrivals = 0
        self._clogged_arrivals = 0
        self._retransmitting_since: int | None = None
        self._detour: Callable[[PipeSegment], None] | None = None
        """The destination of segments if this pipe is held or discards everything."""
        self._holds = 0
        self._held: list[PipeSegment] = []

    def send_data(self, data: bytes) -> None:
        """Send bytes, as one piece or, sometimes, as two."""
        size_bytes = len(data)
        self.unread_bytes += size_bytes
        link = self.link
        draw = link.draw
        tear = (
            1 + int(draw() * (size_bytes - 1))
            if link.torn_writes and size_bytes > 1 and draw() < link.torn_writes
            else 0
        )
        if link.tear is not None:
            self._send_torn(data)
        elif tear:
            self.send(PipeSegment(DATA, data[:tear]), may_join=False)
            self.send(PipeSegment(DATA, data[tear:]), may_join=False)
        else:
            self.send(PipeSegment(DATA, data))

    def send(self, segment: PipeSegment, *, may_join: bool = True) -> None:
        """Send a segment.

        Bytes that would arrive no later than the previous ones are merged with them, as in a
        kernel's receive buffer.
        """
        if self._detour is not None:
            self._detour(segment)
            return
        target = self.target.process
        if not target.is_alive:
            self._discard()
            return
        loop, link = self._loop, self.link
        arrival_ns = loop.now_ns + (
            link.delay_ns(len(segment.data))
            if link.is_slow
            else link.latency_ns + int(link.draw() * link.jitter_ns)
        )
        if arrival_ns <= self._last_arrival_ns:
            if may_join and self.queue and segment.kind is DATA and self.queue[-1].kind is DATA:
                self.queue[-1].data += segment.data
                return
            arrival_ns = self._last_arrival_ns + 1
        self._last_arrival_ns = arrival_ns
        self.queue.append(segment)
        loop.schedule(target, arrival_ns, self._arrive)

    def clear(self) -> None:
        """Discard everything in flight; the arrivals find nothing."""
        self.queue.clear()
        self._held.clear()
        self.unread_bytes = 0

    def retransmit(self) -> None:
        """Repeat lost arrivals: the link was healed."""
        if self.link.is_blocked:
            return
        if not self.target.process.is_alive:
            if self.target.process.host.is_powered:
                self.on_target_powered()
            return
        self._retransmitting_since = None
        loop = self._network.loop
        arrival_ns = max(
            self._last_arrival_ns,
            loop.now_ns
            + self.link.delay_ns()
            + int(self.link.draw() * self._network.settings.retransmission_ns),
        )
        for _ in range(self._lost_arrivals):
            arrival_ns += 1
            loop.schedule(self.target.process, arrival_ns, self._arrive)
        self._last_arrival_ns = arrival_ns
        self._lost_arrivals = 0

    def let_in(self) -> None:
        """Deliver everything that waited at a clogged link now."""
        loop = self._network.loop
        for _ in range(self._clogged_arrivals):
            loop.schedule(self.target.process, loop.now_ns, self._arrive)
        self._clogged_arrivals = 0

    def hurry(self) -> None:
        """Reschedule everything in flight to arrive as on an undelayed link."""
        loop = self._network.loop
        arrival_ns = loop.now_ns + self.link.latency_ns
        for _ in range(loop.unschedule(self._arrive)):
            arrival_ns += 1
            loop.schedule(self.target.process, arrival_ns, self._arrive)
        self._last_arrival_ns = min(self._last_arrival_ns, arrival_ns)

    # ---- faults of one pipe

    def hold(self) -> None:
        """Hold everything that is sent from now on, until `release` was called as often."""
        self._holds += 1
        if self._detour is None:
            self._detour = self._held.append

    def release(self) -> None:
        """End one hold; after the last one everything is sent, in order."""
        self._holds -= 1
        if self._holds == 0 and self._detour == self._held.append:
            self._detour = None
            held, self._held = self._held, []
            for segment in held:
                self.send(segment)

    def lead_nowhere(self, record_effect: EffectRecorder) -> None:
        """Discard everything in flight and everything sent from now on, until `end_nowhere`; the
        writer is not notified before it times out.
        """
        if self.unread_bytes:
            record_effect(f"{self.unread_bytes} bytes were in flight")
            self._begin_retransmission()
        self.clear()

        def lose(segment: PipeSegment) -> None:
            if segment.kind is SegmentKind.DATA:
                record_effect(f"{len(segment.data)} bytes were sent and discarded")
                self._begin_retransmission()

        self._detour = lose

    def end_nowhere(self) -> None:
        """From now on bytes are answered with a reset.

        The writer gets it soon, at the latest by a keepalive probe of its kernel.
        """
        self._detour = lambda segment: self._discard()
        self._retransmitting_since = self._network.loop.now_ns
        self.on_target_powered()

    # ---- notifications by hosts

    def on_target_silent(self) -> None:
        """The host at the other end lost power; unacknowledged bytes are retransmitted in vain."""
        if self.queue:
            self._begin_retransmission()

    def on_target_powered(self) -> None:
        """The host at the other end has power again and does not know this connection: it resets it
        when a segment arrives.
        """
        if self._retransmitting_since is not None:
            self._retransmitting_since = None
            loop = self._network.loop
            delay_ns = int(self.link.draw() * self._network.settings.retransmission_ns)
            loop.schedule(self.source.process, loop.now_ns + delay_ns, self.source.on_reset)

    def _send_torn(self, data: bytes) -> None:
        assert self.link.tear is not None, "there is a function that splits writes"
        for number, (piece, gap_ns) in enumerate(self.link.tear(data)):
            segment = PipeSegment(SegmentKind.DATA, piece)
            if number == 0 or self._detour is not None or not self.target.process.is_alive:
                self.send(segment, may_join=False)
            else:
                self._last_arrival_ns += 1 + gap_ns
                self.queue.append(segment)
                self._network.loop.schedule(
                    self.target.process, self._last_arrival_ns, self._arrive
                )

    def _arrive(self) -> None:
        if self.link.is_shut:
            self.link.record_effect("bytes were held back")
            if self.link.is_blocked:
                self._lost_arrivals += 1
                self._begin_retransmission()
            else:
                self._clogged_arrivals += 1
        elif self.queue:
            self.target.on_segment(self.queue.popleft())

    def _discard(self) -> None:
        """The process at the other end is dead and this end has not been notified yet."""
        loop = self._network.loop
        if self.target.process.host.is_powered and not self.link.is_blocked:
            loop.schedule(
                self.source.process, loop.now_ns + 2 * self.link.delay_ns(), self.source.on_reset
            )
        else:
            self._begin_retransmission()

    def _begin_retransmission(self) -> None:
        if self._retransmitting_since is None:
            loop = self._network.loop
            self._retransmitting_since = loop.now_ns
            limit_ns = loop.now_ns + self._network.settings.retransmission_limit_ns
            loop.schedule(self.source.process, limit_ns, self._give_up, loop.now_ns)

    def _give_up(self, since_ns: int) -> None:
        if self._retransmitting_since == since_ns:
            self.source.on_timeout()
