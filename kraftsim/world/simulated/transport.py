"""One end of a simulated TCP connection: an ordered stream of bytes that arrive late, in other
pieces than they were written, or never.

The work of a host's kernel (receiving, acknowledging, resetting) is done here on behalf of the
process that owns the end; when the process dies the network takes over its ends: a killed process
resets them, a host without power sends nothing.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kraftsim.world.simulated.pipe import DATA, Medium, Pipe, PipeSegment, SegmentKind
from kraftsim.world.simulated.server import SimulatedSocket

if TYPE_CHECKING:
    from kraftsim.world.simulated.frames import FrameWatch
    from kraftsim.world.simulated.host import Process
    from kraftsim.world.simulated.server import SimulatedServer

OPENING = SegmentKind.OPENING
HIGH_WATER_BYTES = 64 * 1024
LOW_WATER_BYTES = 16 * 1024
Address = tuple[str, int]
Farewell = Callable[[OSError | None], object]
"""Called with the error by which an end of a connection was lost; None: its own process closed
it.
"""


class Tap(Protocol):
    """Sees the bytes of one end of a connection, each once; it must not raise."""

    def sent(self, data: bytes) -> None:
        """The process writes bytes, which no fault has touched yet."""
        ...

    def received(self, data: bytes) -> None:
        """Bytes arrived, and the process gets them next."""
        ...


class SimulatedTransport(asyncio.Transport):
    """One end. `number` is that of the connection, the same at both ends."""

    __slots__ = (
        "_cut_after",
        "_farewells",
        "_high_bytes",
        "_inbox",
        "_is_closing",
        "_is_deaf",
        "_is_ended",
        "_is_lost",
        "_is_reading",
        "_is_writing_paused",
        "_low_bytes",
        "_network",
        "_protocol",
        "_returned_bytes",
        "local",
        "number",
        "out",
        "process",
        "remote",
        "server",
        "tap",
        "watch",
    )

    def __init__(
        self,
        network: Medium,
        process: "Process",
        *,
        number: int,
        local: Address,
        remote: Address,
    ) -> None:
        super().__init__()
        self.number = number
        self.process = process
        self.out: Pipe
        self.local = local
        self.remote = remote
        self.server: SimulatedServer | None = None
        self.watch: FrameWatch | None = None
        self.tap: Tap | None = None
        self._network = network
        self._protocol: asyncio.Protocol | asyncio.BufferedProtocol | None = None
        self._is_closing = False
        self._is_lost = False
        self._is_ended = False
        self._is_deaf = False
        self._is_reading = True
        self._is_writing_paused = False
        self._high_bytes, self._low_bytes = HIGH_WATER_BYTES, LOW_WATER_BYTES
        self._inbox: deque[PipeSegment] = deque()
        self._cut_after: int | None = None
        self._returned_bytes = 0
        """Bytes that a tap has seen and the protocol did not take: they are delivered again."""
        self._farewells: list[Farewell] = []

    def __repr__(self) -> str:
        return f"<connection {self.number} {self.process.host.name} {self.local}>{self.remote}>"

    # ---- asyncio.Transport

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return 'sockname', 'peername' or 'socket'."""
        match name:
            case "sockname":
                return self.local
            case "peername":
                return self.remote
            case "socket":
                return SimulatedSocket(self.local, self.remote)
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Deliver bytes to another protocol from now on."""
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol), (
            "there is no third kind"
        )
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        assert self._protocol is not None, "connection_made was not called yet"
        return self._protocol

    def is_closing(self) -> bool:
        """Return whether this end was closed or lost."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Return whether arriving bytes are delivered."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """Leave arriving bytes in the kernel; the writer is paused once its buffer is full."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Deliver buffered bytes, from the next turn on."""
        if not self._is_reading:
            self._is_reading = True
            self._network.loop.schedule(self.process, self._network.loop.now_ns, self._drain_inbox)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the other end has not received yet."""
        return self.out.unread_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high limit."""
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits at which the protocol must pause and resume writing."""
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        self._high_bytes, self._low_bytes = high, high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        """Return True: half-close is supported."""
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; nothing happens on a connection that is closing."""
        if self._is_closing or not data:
            return
        assert not self._is_ended, "write after write_eof"
        if self.tap is not None:
            self.tap.sent(bytes(data))
        if self.watch is not None:
            self.watch.write(self, bytes(data))
        elif self._cut_after is not None:
            self._write_limited(bytes(data))
        else:
            out = self.out  # as in `_transmit`, without a call for each write
            out.send_data(bytes(data))
            if out.unread_bytes > self._high_bytes:
                self._pause_writing()

    # override: typeshed: any iterable; callers pass lists
    def writelines(self, list_of_data: "list[bytes | bytearray | memoryview]") -> None:  # type: ignore[override]
        """Send several pieces as one write."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Send the end of the stream; reading continues."""
        if not self._is_ended and not self._is_closing:
            self._send_end()

    def close(self) -> None:
        """Send what was written, then the end of the stream."""
        if self._is_closing:
            return
        if not self._is_ended:
            self._send_end()
        self._is_closing = True
        self._lose_soon(None)

    def abort(self) -> None:
        """Reset the connection."""
        if self._is_lost:
            return
        if not self._is_closing or not self._is_ended:
            self.out.send(PipeSegment(SegmentKind.RESET))
        self._is_closing = self._is_ended = True
        self._lose_soon(None)

    @property
    def peer(self) -> "SimulatedTransport":
        """The other end."""
        return self.out.target

    # ---- sending

    def cut_after(self, bytes_more: int) -> None:
        """Forward this many more bytes in this direction, then reset the connection at both
        ends.
        """
        self._cut_after = (
            bytes_more if self._cut_after is None else min(self._cut_after, bytes_more)
        )

    def push(self, data: bytes) -> None:
        """Send bytes without parsing them: for `frames`."""
        if self._cut_after is not None:
            self._write_limited(data)
        elif data:
            self._transmit(data)

    def _send_end(self) -> None:
        if self.watch is not None:
            self.watch.end(self)
        if not self._is_ended:
            self._is_ended = True
            self.out.send(PipeSegment(SegmentKind.END))

    def _write_limited(self, data: bytes) -> None:
        allowed = self._cut_after
        assert allowed is not None, "there is a limit"
        if len(data) < allowed:
            self._cut_after = allowed - len(data)
            self._transmit(data)
            return
        if allowed:
            self._transmit(data[:allowed])
        self._network.cut_count += 1
        self.out.send(PipeSegment(SegmentKind.RESET))
        self._is_closing = self._is_ended = self._is_deaf = True
        loop = self._network.loop
        loop.schedule(
            self.process, loop.now_ns + self.out.link.delay_ns(), self._lose, _reset_error()
        )

    def _transmit(self, data: bytes) -> None:
        out = self.out
        out.send_data(data)
        if out.unread_bytes > self._high_bytes:
            self._pause_writing()

    def _pause_writing(self) -> None:
        if not self._is_writing_paused:
            self._is_writing_paused = True
            assert self._protocol is not None, "an end that is written to has a protocol"
            self._protocol.pause_writing()

    # ---- receiving

    def on_segment(self, segment: PipeSegment) -> None:
        """Take what arrives."""
        kind = segment.kind
        if kind is OPENING:
            self._accept()
        elif self._is_deaf:
            return
        elif self._is_lost:
            if kind is DATA:
                self._is_deaf = True
                self.out.send(PipeSegment(SegmentKind.RESET))
        elif self._inbox or not self._is_reading:
            self._inbox.append(segment)
        elif kind is DATA and not 0 < self._network.settings.read_bytes < len(segment.data):
            self._receive(segment.data)
        else:
            self._inbox.append(segment)
            self._drain_inbox()

    def on_reset(self) -> None:
        """The other end does not know this connection."""
        self._lose(_reset_error())

    def on_timeout(self) -> None:
        """The other end has not acknowledged anything for too long."""
        self._lose(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def _drain_inbox(self) -> None:
        while self._inbox and self._is_reading and not self._is_lost:
            self._deliver(self._next_read())

    def _next_read(self) -> PipeSegment:
        """Take as much as one read of a kernel's receive buffer returns, which ignores the
        boundaries of writes.
        """
        segment, read_bytes = self._inbox.popleft(), self._network.settings.read_bytes
        if not read_bytes or segment.kind is not DATA:
            return segment
        data = segment.data
        while len(data) < read_bytes and self._inbox and self._inbox[0].kind is DATA:
            data += self._inbox.popleft().data
        if len(data) > read_bytes:
            self._inbox.appendleft(PipeSegment(DATA, data[read_bytes:]))
        return PipeSegment(DATA, data[:read_bytes])

    def _deliver(self, segment: PipeSegment) -> None:
        protocol = self._protocol
        if segment.kind is SegmentKind.RESET or protocol is None:
            self._lose(_reset_error())
        elif segment.kind is SegmentKind.END:
            try:
                keep_open = protocol.eof_received()
            except Exception as error:
                self._fail(error)
                return
            if not keep_open:
                self.close()
        else:
            self._receive(segment.data)

    def _receive(self, data: bytes) -> None:
        protocol = self._protocol
        if protocol is None:
            self._lose(_reset_error())
            return
        sender = self.out.target  # as in `_take`, without a call for each segment
        sender.out.unread_bytes -= len(data)
        if sender._is_writing_paused:
            self._acknowledge(sender)
        if self._is_closing:
            return
        if self.tap is not None:
            self._show(self.tap, data)
        try:
            if isinstance(protocol, asyncio.Protocol):
                protocol.data_received(data)
            else:
                self._fill(protocol, data)
        except Exception as error:
            self._fail(error)

    def _show(self, tap: Tap, data: bytes) -> None:
        """Show a tap what it has not seen."""
        seen = min(self._returned_bytes, len(data))
        self._returned_bytes -= seen
        if seen < len(data):
            tap.received(data[seen:])

    def _take(self, size_bytes: int) -> None:
        """Free space in the receive buffer."""
        sender = self.out.target
        sender.out.unread_bytes -= size_bytes
        if sender._is_writing_paused:
            self._acknowledge(sender)

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes) -> None:
        """Deliver bytes to the protocol.

        It may pause reading in between, or switch to another protocol for the rest.
        """
        left = memoryview(data)
        while left and self._protocol is protocol and self.is_reading():
            room = memoryview(protocol.get_buffer(len(left)))
            taken = left[: len(room)]
            room[: len(taken)] = taken
            left = left[len(taken) :]
            protocol.buffer_updated(len(taken))
        if left and not self._is_closing:
            self._take(-len(left))
            self._returned_bytes += len(left)
            if self.is_reading():
                self._receive(bytes(left))
            else:
                self._inbox.appendleft(PipeSegment(SegmentKind.DATA, bytes(left)))

    def _acknowledge(self, sender: "SimulatedTransport") -> None:
        """Resume a paused sender, once enough of its bytes were received."""
        if sender.out.unread_bytes <= sender._low_bytes:
            loop = self._network.loop
            loop.schedule(
                sender.process, loop.now_ns + self.out.link.delay_ns(), sender._resume_writing
            )

    def _resume_writing(self) -> None:
        if (
            self._is_writing_paused
            and self.out.unread_bytes <= self._low_bytes
            and not self._is_lost
            and self._protocol is not None
        ):
            self._is_writing_paused = False
            self._protocol.resume_writing()

    def _accept(self) -> None:
        server = self.server
        if server is None or not server.is_serving():
            self._is_closing = self._is_lost = True
            self.process.transports.pop((self.number, self.local), None)
            self._network.forget_if_over(self)
            self.out.send(PipeSegment(SegmentKind.RESET))
            return
        self.begin(server.make_protocol())

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Attach a protocol and notify it of the connection."""
        self.set_protocol(protocol)
        protocol.connection_made(self)

    # ---- ends

    def cut(self) -> None:
        """Discard bytes in flight to the other end, and close this end of the connection."""
        self.out.clear()
        if not self._is_lost:
            self._is_deaf = self._is_closing = self._is_ended = True
            self._lose_soon(_reset_error())

    def forget(self) -> None:
        """Lose this end, as after a time-out; the other end is not notified, and its connection
        stays half-open.
        """
        self.out.clear()
        if not self._is_lost:
            self._is_deaf = self._is_closing = self._is_ended = True
            self._lose_soon(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def when_lost(self, farewell: Farewell) -> None:
        """Call this function once this end is lost, but not if its process dies."""
        self._farewells.append(farewell)

    def on_process_death(self, *, power_loss: bool) -> None:
        """The process that owns this end is gone: a running kernel resets the connection, one
        without power sends nothing more.
        """
        if power_loss:
            self.peer.out.on_target_silent()
        elif not self._is_lost:
            self.out.send(PipeSegment(SegmentKind.RESET))
        self._is_closing = self._is_lost = True
        self._network.forget_if_over(self)

    @property
    def is_lost(self) -> bool:
        """Return whether this end is closed or lost."""
        return self._is_lost

    @property
    def is_busy(self) -> bool:
        """Return whether bytes are in flight in either direction."""
        return self.out.unread_bytes > 0 or self.peer.out.unread_bytes > 0

    def _fail(self, error: Exception) -> None:
        self._network.loop.call_exception_handler(
            {"message": f"{self._protocol!r} failed", "exception": error, "process": self.process}
        )
        self.abort()

    def _lose_soon(self, error: OSError | None) -> None:
        loop = self._network.loop
        loop.schedule(self.process, loop.now_ns, self._lose, error)

    def _lose(self, error: OSError | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._inbox.clear()
        self.process.transports.pop((self.number, self.local), None)
        self._network.forget_if_over(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)
        for farewell in self._farewells:
            farewell(error)


def _reset_error() -> OSError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
