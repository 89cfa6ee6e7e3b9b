"""Splits received bytes into frames: an int32 size, then so many bytes.

Each byte of a frame that arrives in pieces is copied once. A size that is negative or above the
limit closes the connection, because the start of the next frame is unknown.
Source: org.apache.kafka.common.network.NetworkReceive; socket.request.max.bytes.
"""

from struct import Struct

from protocol.malformed import MalformedMessage

SOCKET_REQUEST_MAX_BYTES = 104_857_600
"""Kafka's default of socket.request.max.bytes."""
SIZE = Struct(">i")
DROPS_MAX, DROP_BYTES_MAX = 256, 4096
"""The number of pieces smaller than this that are kept separately."""


class BadFrameSize(MalformedMessage):
    """A frame with an invalid size; `frames` are the complete ones before it in the same piece of
    input.
    """

    def __init__(self, size: int, reason: str, frames: list[bytes]) -> None:
        super().__init__(None, None, "", reason)
        self.size = size
        self.frames = frames


class FrameTooLarge(BadFrameSize):
    """A size above the limit."""


class NegativeFrameSize(BadFrameSize):
    """A size below zero."""


class FrameReader:
    """Buffers the input of one connection."""

    def __init__(self, limit: int = SOCKET_REQUEST_MAX_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._drops: list[bytes] = []
        self._missing_bytes = 0
        self._partial_size = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames, without their sizes, that are complete now; an empty frame is a frame,
        too.
        """
        if (
            not self._missing_bytes
            and not self._partial_size
            and 4 <= len(data) <= self._limit
            and SIZE.unpack_from(data)[0] == len(data) - 4
        ):
            return [data[4:]]  # a single one, whole: what a peer sends that waits for each answer
        if self._missing_bytes > len(data):
            self._add_piece(data)
            return []
        frames: list[bytes] = []
        position = self._missing_bytes
        if position:
            frames.append(b"".join((*self._pieces, *self._drops, data[:position])))
            self._pieces, self._drops = [], []
            self._missing_bytes = 0
        elif self._partial_size:
            data = self._partial_size + data
            self._partial_size = b""
        self._take_frames(data, position, frames)
        return frames

    def _add_piece(self, data: bytes) -> None:
        """Store a piece of a frame.

        Many small ones are joined: an object for each byte would take forty times as much memory.
        """
        self._missing_bytes -= len(data)
        self._drops.append(data)
        if len(self._drops) >= DROPS_MAX or len(data) >= DROP_BYTES_MAX:
            self._pieces.append(b"".join(self._drops) if len(self._drops) > 1 else data)
            self._drops = []

    def _take_frames(self, data: bytes, position: int, frames: list[bytes]) -> None:
        """Split complete frames from `position` on, and keep the rest."""
        available_bytes = len(data)
        while position + 4 <= available_bytes:
            size: int = SIZE.unpack_from(data, position)[0]
            if not 0 <= size <= self._limit:
                self._refuse(size, frames)
            position += 4
            if position + size > available_bytes:
                self._pieces = [data[position:]]
                self._missing_bytes = position + size - available_bytes
                return
            frames.append(data[position : position + size])
            position += size
        self._partial_size = data[position:]

    def _refuse(self, size: int, frames: list[bytes]) -> None:
        if size < 0:
            raise NegativeFrameSize(size, f"a frame of {size} bytes", frames)
        raise FrameTooLarge(
            size, f"a frame of {size} bytes is above the limit of {self._limit}", frames
        )
