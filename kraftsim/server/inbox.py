"""The unserved input of a connection: stretches of bytes that start with a complete frame, and the
beginning of the next frame.

Frames are served in place, in the buffer that the socket was read into. Only a frame that arrives
in pieces is joined, once; a large one gets a buffer of its own size (`LargeFrames`).

Source: org.apache.kafka.common.network.NetworkReceive; socket.request.max.bytes.
"""

from collections import deque
from mmap import mmap
from struct import Struct

from kraftsim.server.large_frames import LARGE_FRAME_BYTES, LargeFrames

Buffer = bytes | mmap
"""Slicing either returns bytes, which the codecs rely on."""
Stretch = tuple[Buffer, int, int]
"""A buffer, and the start and end of its unserved bytes."""
SIZE_BYTES = 4
PIECES_MAX = 64
"""The number of pieces that are joined before a frame is complete: one object per byte of a slow
client would cost forty times its bytes.
"""
VIEWED_BYTES_MIN = 4096
"""A shorter beginning of a frame is copied, so that it does not keep the whole read buffer
alive.
"""
_SIZE = Struct(">i").unpack_from


class Inbox:
    """The input of one connection. `waiting` are the stretches to be served, oldest first; each
    starts with a complete frame or an invalid size.
    """

    __slots__ = (
        "_large_frame_bytes",
        "_missing_bytes",
        "_pieces",
        "_size_part",
        "announced_bytes",
        "frame_bytes_max",
        "large",
        "waiting",
    )

    def __init__(self, frame_bytes_max: int, large_frame_bytes: int = LARGE_FRAME_BYTES) -> None:
        self.waiting: deque[Stretch] = deque()
        self.large: LargeFrames | None = None
        """Receives in place of the connection while large frames arrive."""
        self.announced_bytes = 0
        """The size, including its four-byte prefix, of a large frame whose beginning is in
        `pieces`; 0 if there is none.
        """
        self.frame_bytes_max = frame_bytes_max
        self._large_frame_bytes = large_frame_bytes
        self._pieces: list[bytes | memoryview] = []
        self._missing_bytes = 0
        self._size_part = b""

    def take(self, data: bytes) -> None:
        """Add received bytes."""
        missing_bytes = self._missing_bytes
        if missing_bytes:
            if len(data) < missing_bytes:
                self._add_piece(data)
                return
            self._pieces.append(memoryview(data)[:missing_bytes])
            frame = self.take_pieces()
            self.waiting.append((frame, 0, len(frame)))
            self._sort(data, missing_bytes, len(data))
            return
        if self._size_part:
            data, self._size_part = self._size_part + data, b""
        elif self.waiting:
            buffer, position, end = (
                self.waiting.pop()
            )  # it may end within a frame; rarely reached while reading is paused
            data = buffer[position:end] + data
        self._sort(data, 0, len(data))

    def put_back(self, buffer: Buffer, position: int, end: int) -> None:
        """Return the unserved rest of the stretch that was first in `waiting`."""
        if self.begins_with_frame(buffer, position, end):
            self.waiting.appendleft((buffer, position, end))
        elif position < end or self.large is not None:
            assert not self.waiting, "only the last stretch ends within a frame"
            self._keep(buffer, position, end)

    def begins_with_frame(self, buffer: Buffer, position: int, end: int) -> bool:
        """Return whether a stretch can be processed: it starts with a complete frame, or with an
        invalid size, which is refused.
        """
        if end - position < SIZE_BYTES:
            return False
        size: int = _SIZE(buffer, position)[0]
        return end - position - SIZE_BYTES >= size or not 0 <= size <= self.frame_bytes_max

    def first_size(self, buffer: Buffer, position: int) -> int:
        """Return the size prefix of a frame."""
        size: int = _SIZE(buffer, position)[0]
        return size

    def take_pieces(self) -> bytes:
        """Return the joined beginning of the next frame."""
        joined = b"".join(self._pieces)
        self._pieces = []
        self._missing_bytes = self.announced_bytes = 0
        return joined

    def clear(self) -> None:
        """Drop everything."""
        self.waiting.clear()
        self._pieces = []
        self._size_part = b""

    def _sort(self, data: bytes, position: int, end: int) -> None:
        """Add a stretch at the end."""
        if self.begins_with_frame(data, position, end):
            self.waiting.append((data, position, end))
        else:
            self._keep(data, position, end)

    def _keep(self, buffer: Buffer, position: int, end: int) -> None:
        """Keep the beginning of a frame."""
        if self.large is not None:
            self.large.keep(position, end)
            return
        assert isinstance(buffer, bytes), "other buffers belong to large frames"
        kept_bytes = end - position
        if kept_bytes < SIZE_BYTES:
            self._size_part = buffer[position:end]
            return
        frame_bytes = SIZE_BYTES + self.first_size(buffer, position)
        self._pieces = [
            memoryview(buffer)[position:end]
            if kept_bytes >= VIEWED_BYTES_MIN
            else buffer[position:end]
        ]
        self._missing_bytes = frame_bytes - kept_bytes
        if frame_bytes > self._large_frame_bytes:
            self.announced_bytes = frame_bytes

    def _add_piece(self, data: bytes) -> None:
        self._missing_bytes -= len(data)
        self._pieces.append(data)
        if len(self._pieces) >= PIECES_MAX:
            self._pieces = [b"".join(self._pieces)]
