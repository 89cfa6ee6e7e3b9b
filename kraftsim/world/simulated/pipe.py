"""One direction of a simulated TCP connection: what was written and has not arrived yet.

Segments wait in one queue, and every arrival takes the oldest of them: whatever happens to a single arrival, bytes never change their order. An
arrival into a partition is lost; when the link is healed as many are made up for as were lost, as TCP does by sending again.
"""

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from kraftsim.world.simulated.link import Link

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

    __slots__ = ("_last_arrival_ns", "_lost_arrivals", "_network", "_retransmitting_since", "link", "queue", "source", "target", "unread_bytes")

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
        self._retransmitting_since: int | None = None

    def send_data(self, data: bytes) -> None:
        """Send bytes, as one piece or, now and then, as two."""
        self.unread_bytes += len(data)
        link = self.link
        if link.torn_writes and len(data) > 1 and link.draw() < link.torn_writes:
            tear = 1 + int(link.draw() * (len(data) - 1))
            self.send(Segment(Kind.DATA, data[:tear]), may_join=False)
            self.send(Segment(Kind.DATA, data[tear:]), may_join=False)
        else:
            self.send(Segment(Kind.DATA, data))

    def send(self, segment: Segment, *, may_join: bool = True) -> None:
        """Send a segment. Bytes that would arrive no later than the ones before them join those, as in a kernel's receive buffer."""
        target = self.target.process
        if not target.is_alive:
            self._send_to_nobody()
            return
        loop = self._network.loop
        arrival_ns = loop.now_ns + self.link.delay_ns()
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
        self.unread_bytes = 0

    def retransmit(self) -> None:
        """Make up for lost arrivals: the link was healed."""
        if self.link.is_blocked or not self.target.process.is_alive:
            return
        self._retransmitting_since = None
        loop = self._network.loop
        arrival_ns = max(self._last_arrival_ns, loop.now_ns + self.link.delay_ns() + int(self.link.draw() * self._network.settings.retransmission_ns))
        for _ in range(self._lost_arrivals):
            arrival_ns += 1
            loop.schedule(self.target.process, arrival_ns, self._arrive)
        self._last_arrival_ns = arrival_ns
        self._lost_arrivals = 0

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

    def _arrive(self) -> None:
        if self.link.is_blocked:
            self.link.bite("bytes were held back")
            self._lost_arrivals += 1
            self._begin_retransmission()
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
