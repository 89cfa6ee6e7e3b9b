"""One direction of a simulated TCP connection: what was written and has not arrived yet.

Segments wait in one queue, and every arrival takes the oldest of them: whatever happens to a single arrival, bytes never change their order. An
arrival into a partition is lost; when the link is healed as many are made up for as were lost, as TCP does by sending again. An arrival at a
clogged link waits and is let in, in order, once the link is clear. A pipe can also be held by itself, and it can lead nowhere at all.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from kraftsim.world.simulated.link import Bite, Link

if TYPE_CHECKING:
    from kraftsim.world.simulated.network import Network
    from kraftsim.world.simulated.transport import SimulatedTransport


class Kind(Enum):
    """What a segment carries."""

    DATA = 1
    OPENING = 2
    END = 3
    RESET = 4


class Segment:
    """A piece of the stream."""

    __slots__ = ("data", "kind")

    def __init__(self, kind: Kind, data: bytes = b"") -> None:
        self.kind = kind
        self.data = data


class Pipe:
    """The way from one end of a connection to the other."""

    __slots__ = (
        "_clogged_arrivals", "_detour", "_held", "_holds", "_last_arrival_ns", "_lost_arrivals", "_network", "_retransmitting_since", "link", "queue",
        "source", "target", "unread_bytes",
    )  # fmt: skip

    def __init__(self, network: "Network", link: Link, source: "SimulatedTransport", target: "SimulatedTransport") -> None:
        self.link = link
        self.source = source
        self.target = target
        self.queue: deque[Segment] = deque()
        self.unread_bytes = 0
        """Bytes written that the other process has not been given."""
        self._network = network
        self._last_arrival_ns = 0
        self._lost_arrivals = 0
        self._clogged_arrivals = 0
        self._retransmitting_since: int | None = None
        self._detour: Callable[[Segment], None] | None = None
        """Where segments go instead, if this pipe is held or leads nowhere."""
        self._holds = 0
        self._held: list[Segment] = []

    def send_data(self, data: bytes) -> None:
        """Send bytes, as one piece or, now and then, as two."""
        self.unread_bytes += len(data)
        link = self.link
        tear = 1 + int(link.draw() * (len(data) - 1)) if link.torn_writes and len(data) > 1 and link.draw() < link.torn_writes else 0
        if link.tear is not None:
            self._send_torn(data)
        elif tear:
            self.send(Segment(Kind.DATA, data[:tear]), may_join=False)
            self.send(Segment(Kind.DATA, data[tear:]), may_join=False)
        else:
            self.send(Segment(Kind.DATA, data))

    def send(self, segment: Segment, *, may_join: bool = True) -> None:
        """Send a segment. Bytes that would arrive no later than the ones before them join those, as in a kernel's receive buffer."""
        if self._detour is not None:
            self._detour(segment)
            return
        target = self.target.process
        if not target.is_alive:
            self._send_to_nobody()
            return
        loop = self._network.loop
        arrival_ns = loop.now_ns + self.link.delay_ns(len(segment.data))
        if arrival_ns <= self._last_arrival_ns:
            if may_join and self.queue and segment.kind is Kind.DATA and self.queue[-1].kind is Kind.DATA:
                self.queue[-1].data += segment.data
                return
            arrival_ns = self._last_arrival_ns + 1
        self._last_arrival_ns = arrival_ns
        self.queue.append(segment)
        loop.schedule(target, arrival_ns, self._arrive)

    def clear(self) -> None:
        """Lose everything that is on its way; the arrivals find nothing."""
        self.queue.clear()
        self._held.clear()
        self.unread_bytes = 0

    def retransmit(self) -> None:
        """Make up for lost arrivals: the link was healed."""
        if self.link.is_blocked:
            return
        if not self.target.process.is_alive:
            if self.target.process.host.is_powered:
                self.on_target_powered()
            return
        self._retransmitting_since = None
        loop = self._network.loop
        arrival_ns = max(self._last_arrival_ns, loop.now_ns + self.link.delay_ns() + int(self.link.draw() * self._network.settings.retransmission_ns))
        for _ in range(self._lost_arrivals):
            arrival_ns += 1
            loop.schedule(self.target.process, arrival_ns, self._arrive)
        self._last_arrival_ns = arrival_ns
        self._lost_arrivals = 0

    def let_in(self) -> None:
        """Let arrive what waited at a clogged link, all of it now."""
        loop = self._network.loop
        for _ in range(self._clogged_arrivals):
            loop.schedule(self.target.process, loop.now_ns, self._arrive)
        self._clogged_arrivals = 0

    def hurry(self) -> None:
        """Let what is on its way arrive as soon as an undelayed link allows."""
        loop = self._network.loop
        arrival_ns = loop.now_ns + self.link.latency_ns
        for _ in range(loop.unschedule(self._arrive)):
            arrival_ns += 1
            loop.schedule(self.target.process, arrival_ns, self._arrive)
        self._last_arrival_ns = min(self._last_arrival_ns, arrival_ns)

    # ---- one pipe alone

    def hold(self) -> None:
        """Keep back what is sent from now on, whatever it is, until `release` was called as often."""
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

    def lead_nowhere(self, bite: Bite) -> None:
        """Lose what is on its way and what is sent from now on, until `end_nowhere`; the writer is not told before it gives up by itself."""
        if self.unread_bytes:
            bite(f"{self.unread_bytes} bytes were on their way")
            self._begin_retransmission()
        self.clear()

        def lose(segment: Segment) -> None:
            if segment.kind is Kind.DATA:
                bite(f"{len(segment.data)} bytes were sent to nobody")
                self._begin_retransmission()

        self._detour = lose

    def end_nowhere(self) -> None:
        """From now on what is sent is answered: nobody knows this connection. The writer hears of it soon, be it from a probe of its kernel."""
        self._detour = lambda segment: self._send_to_nobody()
        self._retransmitting_since = self._network.loop.now_ns
        self.on_target_powered()

    # ---- what hosts tell

    def on_target_silent(self) -> None:
        """The host at the other end lost its power; what it has not acknowledged is sent again, in vain."""
        if self.queue:
            self._begin_retransmission()

    def on_target_powered(self) -> None:
        """The host at the other end has power again and does not know this connection: it resets it, if it hears of it."""
        if self._retransmitting_since is not None:
            self._retransmitting_since = None
            loop = self._network.loop
            delay_ns = int(self.link.draw() * self._network.settings.retransmission_ns)
            loop.schedule(self.source.process, loop.now_ns + delay_ns, self.source.on_reset)

    def _send_torn(self, data: bytes) -> None:
        assert self.link.tear is not None, "there is somebody who tears"
        for number, (piece, gap_ns) in enumerate(self.link.tear(data)):
            segment = Segment(Kind.DATA, piece)
            if number == 0 or self._detour is not None or not self.target.process.is_alive:
                self.send(segment, may_join=False)
            else:
                self._last_arrival_ns += 1 + gap_ns
                self.queue.append(segment)
                self._network.loop.schedule(self.target.process, self._last_arrival_ns, self._arrive)

    def _arrive(self) -> None:
        if self.link.is_shut:
            self.link.bite("bytes were held back")
            if self.link.is_blocked:
                self._lost_arrivals += 1
                self._begin_retransmission()
            else:
                self._clogged_arrivals += 1
        elif self.queue:
            self.target.on_segment(self.queue.popleft())

    def _send_to_nobody(self) -> None:
        """The process at the other end is dead and this end does not know it yet."""
        loop = self._network.loop
        if self.target.process.host.is_powered and not self.link.is_blocked:
            loop.schedule(self.source.process, loop.now_ns + 2 * self.link.delay_ns(), self.source.on_reset)
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
