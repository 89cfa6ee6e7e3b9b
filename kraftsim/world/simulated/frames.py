"""Watches the bytes of connections for Kafka frames, so that a fault can say 'the third InitProducerId answer'.

Only the head of a frame is read: its size, and in a request the API key and correlation id, by which the answer is recognised.
Source: Kafka protocol guide, "Common Request and Response Structure".
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftsim.world.simulated.transport import SimulatedTransport

REQUEST_HEAD = struct.Struct(">ihhi")
"""size, API key, API version, correlation id"""
RESPONSE_HEAD = struct.Struct(">ii")
"""size, correlation id"""
SIZE_FIELD_BYTES = 4
FRAME_MAX_BYTES = 100 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameSeen:
    """A frame that is about to be sent, or was just sent. `start` is the place of its size field in the write; negative if that went out before."""

    transport: "SimulatedTransport"
    api_key: int
    correlation_id: int
    is_response: bool
    start: int
    size_bytes: int

    @property
    def client(self) -> str:
        """Name of the host that connected."""
        return (self.transport.peer if self.is_response else self.transport).process.host.name

    @property
    def server(self) -> str:
        """Name of the host that accepted."""
        return (self.transport if self.is_response else self.transport.peer).process.host.name

    def cut(self, after_bytes: int) -> None:
        """Let only so many bytes of the frame through (its size field included), then reset the connection. Must be called before it is sent."""
        self.transport.cut_after(max(0, self.start + min(after_bytes, self.size_bytes)))


class FrameWatch:
    """Follows both directions of one connection. A watch that is attached to an open connection believes that the next write begins a frame."""

    def __init__(self, client: "SimulatedTransport", report: Callable[[FrameSeen, str], None]) -> None:
        self._client = client
        self._report = report
        self._requests = _Scanner(REQUEST_HEAD)
        self._responses = _Scanner(RESPONSE_HEAD)
        self._api_keys: dict[int, int] = {}
        self._sent: list[FrameSeen] = []

    def before_write(self, transport: "SimulatedTransport", data: bytes) -> None:
        """Report the frames that begin in this write, with the moment 'before'."""
        is_response = transport is not self._client
        self._sent = [
            self._seen(transport, is_response, start, head) for start, head in (self._responses if is_response else self._requests).scan(data)
        ]
        for frame in self._sent:
            self._report(frame, "before")

    def after_write(self, transport: "SimulatedTransport") -> None:
        """Report the same frames with the moment 'after'."""
        sent, self._sent = self._sent, []
        for frame in sent:
            self._report(frame, "after")

    def _seen(self, transport: "SimulatedTransport", is_response: bool, start: int, head: bytes) -> FrameSeen:
        if is_response:
            size, correlation_id = RESPONSE_HEAD.unpack(head)
            api_key = self._api_keys.pop(correlation_id, -1)
        else:
            size, api_key, _, correlation_id = REQUEST_HEAD.unpack(head)
            self._api_keys[correlation_id] = api_key
        return FrameSeen(
            transport=transport,
            api_key=api_key,
            correlation_id=correlation_id,
            is_response=is_response,
            start=start,
            size_bytes=size + SIZE_FIELD_BYTES,
        )


class _Scanner:
    """Finds where frames begin in one direction, whatever the portions in which they are written."""

    def __init__(self, head: struct.Struct) -> None:
        self._head_bytes = head.size
        self._head = bytearray()
        self._missing_bytes = 0
        self._is_astray = False

    def scan(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return (start, head) of every frame whose head is completed by these bytes."""
        found: list[tuple[int, bytes]] = []
        position = 0
        while position < len(data) and not self._is_astray:
            if self._missing_bytes:
                step = min(self._missing_bytes, len(data) - position)
                self._missing_bytes -= step
                position += step
                continue
            start = position - len(self._head)
            taken = data[position : position + self._head_bytes - len(self._head)]
            self._head += taken
            position += len(taken)
            if len(self._head) == self._head_bytes:
                found.append((start, bytes(self._head)))
                self._end_head()
        return found

    def _end_head(self) -> None:
        size = int.from_bytes(self._head[:SIZE_FIELD_BYTES], "big", signed=True)
        self._is_astray = not 0 <= size <= FRAME_MAX_BYTES
        self._missing_bytes = max(0, size + SIZE_FIELD_BYTES - self._head_bytes)
        self._head.clear()
