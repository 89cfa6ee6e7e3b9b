"""Parses the bytes of connections for Kafka frames, so that a fault can target 'the third
InitProducerId answer' and drop, delay or change it.

Only the header of a frame is read: its size, and in a request the API key, version and correlation
id, which identifies the answer. The bytes of a header that is written in pieces are sent together,
so that a frame can be truncated at any of its bytes.
Source: Kafka protocol guide, "Common Request and Response Structure".
"""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from kraftsim.world.simulated.transport import SimulatedTransport

REQUEST_HEAD = struct.Struct(">ihhi")
"""size, API key, API version, correlation id"""
RESPONSE_HEAD = struct.Struct(">ii")
"""size, correlation id"""
SIZE_FIELD_BYTES = 4
FRAME_MAX_BYTES = 100 * 1024 * 1024
UNKNOWN = -1

Report = Callable[["FrameSeen", str], None]
Rewrite = Callable[[bytes], bytes]
"""A complete frame, its size field included -> its replacement (empty: it is dropped)."""


class FrameSeen(Struct, eq=False):
    """A frame that is about to be sent, or was just sent. It can be changed only before it is sent.

    `request` is that of a response; None for a request, and for an answer to a request from before
    the watch.
    """

    transport: "SimulatedTransport"
    api_key: int
    api_version: int
    correlation_id: int
    size_bytes: int
    """The size with its size field."""
    is_response: bool = False
    request: "FrameSeen | None" = None
    data: bytes = b""
    """All of its bytes, once it was written, if `rewrite` was called."""
    _cut_after: int | None = None
    _holds: int = 0
    _rewrites: tuple[Rewrite, ...] = ()

    @property
    def client(self) -> str:
        """Name of the host that connected."""
        return (self.transport.peer if self.is_response else self.transport).process.host.name

    @property
    def server(self) -> str:
        """Name of the host that accepted."""
        return (self.transport if self.is_response else self.transport.peer).process.host.name

    def cut(self, after_bytes: int) -> None:
        """Forward only so many bytes of the frame (its size field included), then reset the
        connection.
        """
        after_bytes = max(0, min(after_bytes, self.size_bytes))
        self._cut_after = (
            after_bytes if self._cut_after is None else min(self._cut_after, after_bytes)
        )

    def hold(self) -> Callable[[], None]:
        """Hold the frame, and everything behind it in its direction.

        Returns a function that releases it; a second call does nothing.
        """
        self._holds += 1
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self.transport.out.release()

        return release

    def rewrite(self, function: Rewrite) -> None:
        """Call a function with the frame once it is written completely, and send the result."""
        self._rewrites = (*self._rewrites, function)

    @property
    def cut_after(self) -> int | None:
        """The number of its bytes after which the connection is reset."""
        return self._cut_after

    @property
    def holds(self) -> int:
        """The number of holds."""
        return self._holds

    def rewritten(self, data: bytes) -> bytes:
        """Return the replacement of the whole frame."""
        self.data = data
        for rewrite in self._rewrites:
            data = rewrite(data)
        return data


class _Lane:
    """One direction of a connection: the state of the frame that is being written."""

    __slots__ = ("collected", "frame", "head", "is_astray", "kept", "missing_bytes")

    def __init__(self, head: struct.Struct) -> None:
        self.head = head
        self.kept = b""
        """The beginning of an incomplete header."""
        self.missing_bytes = 0
        self.frame: FrameSeen | None = None
        self.collected = bytearray()
        self.is_astray = False
        """Whether the bytes are not frames; then they are not parsed any more."""

    def is_no_frame(self, data: bytes, position: int) -> bool:
        """Return, as soon as the size is known, whether this cannot be a frame."""
        if len(data) - position < SIZE_FIELD_BYTES:
            return False
        size = int.from_bytes(data[position : position + SIZE_FIELD_BYTES], "big", signed=True)
        return not self.head.size - SIZE_FIELD_BYTES <= size <= FRAME_MAX_BYTES


class FrameWatch:
    """Follows both directions of one connection.

    A watch that is attached to an open connection assumes that the next write begins a frame.
    """

    def __init__(self, client: "SimulatedTransport", report: Report) -> None:
        self._client = client
        self._report = report
        self._requests = _Lane(REQUEST_HEAD)
        self._responses = _Lane(RESPONSE_HEAD)
        self._unanswered: dict[int, FrameSeen] = {}

    def write(self, transport: "SimulatedTransport", data: bytes) -> None:
        """Report the frames that begin in this write, and send the rest of it after all
        decisions.
        """
        lane = self._requests if transport is self._client else self._responses
        if lane.is_astray:
            transport.push(data)
            return
        if lane.kept:
            data, lane.kept = lane.kept + data, b""
        elif (
            lane.missing_bytes == 0
            and len(data) >= lane.head.size
            and lane.head.unpack_from(data)[0] == len(data) - SIZE_FIELD_BYTES
        ):
            self._write_frame(lane, transport, data)
            return
        ready = bytearray()
        """Bytes of this write that are not sent yet."""
        sent: list[FrameSeen] = []
        position = 0
        while position < len(data):
            if lane.missing_bytes == 0:
                if lane.is_no_frame(data, position):
                    lane.is_astray = True
                    ready += data[position:]
                    break
                if len(data) - position < lane.head.size:
                    lane.kept = data[position:]
                    break
                frame = self._begin(lane, transport, data, position)
                if transport.is_closing():
                    return
                sent.append(frame)
                self._prepare(frame, transport, ready)
            end = min(position + lane.missing_bytes, len(data))
            self._take(lane, data[position:end], ready)
            position = end
        transport.push(bytes(ready))
        for frame in sent:
            self._report(frame, "after")

    def _write_frame(self, lane: _Lane, transport: "SimulatedTransport", data: bytes) -> None:
        """The same for a write that is one complete frame, as nearly all are."""
        frame = self._begin(lane, transport, data, 0)
        if transport.is_closing():
            return
        if frame._holds or frame._cut_after is not None or frame._rewrites:
            ready = bytearray()
            self._prepare(frame, transport, ready)
            self._take(lane, data, ready)
            data = bytes(ready)
        else:
            lane.missing_bytes = 0
        transport.push(data)
        self._report(frame, "after")

    def end(self, transport: "SimulatedTransport") -> None:
        """Send the kept bytes: nothing more will be written in this direction."""
        lane = self._requests if transport is self._client else self._responses
        kept = bytes(lane.collected) + lane.kept
        lane.kept, lane.frame = b"", None
        lane.collected.clear()
        if kept:
            transport.push(kept)

    def _begin(
        self, lane: _Lane, transport: "SimulatedTransport", data: bytes, position: int
    ) -> FrameSeen:
        if lane is self._requests:
            size, api_key, api_version, correlation_id = lane.head.unpack_from(data, position)
            frame = FrameSeen(
                transport, api_key, api_version, correlation_id, size + SIZE_FIELD_BYTES
            )
            self._unanswered[correlation_id] = frame
        else:
            size, correlation_id = lane.head.unpack_from(data, position)
            request = self._unanswered.pop(correlation_id, None)
            api_key, api_version = (
                (UNKNOWN, UNKNOWN) if request is None else (request.api_key, request.api_version)
            )
            frame = FrameSeen(
                transport,
                api_key,
                api_version,
                correlation_id,
                size + SIZE_FIELD_BYTES,
                True,
                request,
            )
        lane.missing_bytes = frame.size_bytes
        self._report(frame, "before")
        lane.frame = frame if frame._rewrites else None
        return frame

    def _prepare(self, frame: FrameSeen, transport: "SimulatedTransport", ready: bytearray) -> None:
        """Apply the decisions about a frame that is sent now, after the bytes before it in the
        write.
        """
        if frame.holds:
            transport.push(bytes(ready))
            ready.clear()
            for _ in range(frame.holds):
                transport.out.hold()
        if frame.cut_after is not None:
            transport.cut_after(len(ready) + frame.cut_after)

    def _take(self, lane: _Lane, piece: bytes, ready: bytearray) -> None:
        """Move a piece of the current frame to its buffer."""
        lane.missing_bytes -= len(piece)
        if lane.frame is None:
            ready += piece
            return
        lane.collected += piece
        if lane.missing_bytes == 0:
            ready += lane.frame.rewritten(bytes(lane.collected))
            lane.frame = None
            lane.collected.clear()
