"""The unserved input of a connection: stretches of bytes that start with a complete frame, and the
beginning of the next frame.

Frames are served in place, in the buffer that the socket was read into. Only a frame that arrives
in pieces is joined, once; a large one gets a buffer of its own size (`LargeFrames`).

Source: org.apache.kafka.common.network.NetworkReceive; socket.request.max.bytes.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct

# --------------------------------------------------------------------------------------------------
# Receives large frames directly into buffers of their size, so that the copy out of the socket is
# the last one before the disk
#
# The buffer is an anonymous mapping that uses no memory until bytes arrive: a client that announces
# a hundred megabytes and sends ten bytes occupies one page. A producer's next batch is usually as
# large as its last one, so the connection continues to read one frame at a time, each from the
# start of the same mapping, until small frames arrive.
#
# Source: org.apache.kafka.common.network.NetworkReceive (allocates the announced size),
# queued.max.request.bytes (its remedy).

LARGE_FRAME_BYTES = 128 * 1024
"""From this size on a saved copy is worth the change of the receiver (measured)."""
KEPT_BYTES_MAX = 4 * 1024 * 1024
"""A mapping up to this size is reused: faulting in new pages costs about as much as the saved
copy.
"""
_SURPLUS = memoryview(bytearray(65536))
"""Receives surplus bytes: a transport that gets an empty buffer raises RuntimeError, which would
stop the node.
"""


class LargeFrames(asyncio.BufferedProtocol):
    """Replaces the protocol of a connection, `owner`.

    `on_received` is called for every arrival; `on_frames(buffer, position, end)` gets stretches
    that start with a complete frame or an invalid size, and calls `keep`, now or later. The owner
    does not read in between: bytes that arrive anyway are lost, so `on_surplus` must close the
    connection.
    """

    def __init__(
        self,
        owner: asyncio.Protocol,
        *,
        on_received: Callable[[], object],
        on_frames: Callable[[mmap, int, int], None],
        on_surplus: Callable[[], None],
        frame_bytes_max: int,
        begun: bytes,
        frame_bytes: int,
        large_frame_bytes: int = LARGE_FRAME_BYTES,
    ) -> None:
        """`begun` are the first bytes of a frame of `frame_bytes`.

        Raises OSError if there is no memory for it.
        """
        # method-assign: the owner handles everything except data
        self.eof_received = owner.eof_received  # type: ignore[method-assign]
        self.connection_lost = owner.connection_lost  # type: ignore[method-assign]
        self.pause_writing = owner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = owner.resume_writing  # type: ignore[method-assign]
        self._on_received = on_received
        self._on_frames = on_frames
        self._on_surplus = on_surplus
        self._frame_bytes_max = frame_bytes_max
        self._large_frame_bytes = large_frame_bytes
        self._expected_bytes = frame_bytes
        self._take_new_buffer(frame_bytes)
        self._view[: len(begun)] = begun
        self._first, self._end, self._stop = 0, len(begun), frame_bytes
        self._needs_room = False

    @property
    def is_over(self) -> bool:
        """Whether no frame has started and the next one is probably small."""
        return self._first == self._end and self._expected_bytes <= self._large_frame_bytes

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return buffer space for the rest of the started frame, or for the expected size of the
        next one.
        """
        if self._needs_room:
            self._make_room()
        if self._end >= self._stop:
            return _SURPLUS
        return self._view[self._end : self._stop]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on a stretch that starts with a complete frame."""
        self._on_received()
        if self._end >= self._stop and not self._needs_room:
            self._on_surplus()
            return
        self._end += nbytes
        received_bytes = self._end - self._first
        if received_bytes < SIZE_BYTES:
            return
        size: int = _SIZE(self._buffer, self._first)[0]
        if 0 <= size <= self._frame_bytes_max:
            frame_bytes = SIZE_BYTES + size
            if received_bytes < frame_bytes:
                self._stop = self._first + frame_bytes
                self._needs_room = self._stop > len(self._buffer)
                return
            self._expected_bytes = max(frame_bytes, self._expected_bytes // 2)
        self._on_frames(self._buffer, self._first, self._end)

    def keep(self, position: int, end: int) -> None:
        """Continue after the served bytes: the bytes from `position` to `end` start the next frame,
        if there are any.
        """
        self._first, self._end = position, end
        self._needs_room = True
        if position == end and len(self._buffer) > KEPT_BYTES_MAX:
            self._take_new_buffer(self._expected_bytes)

    def _make_room(self) -> None:
        """Find space for the next frame.

        Bytes still referenced by a waiting request are not overwritten.
        """
        begun_bytes = self._end - self._first
        wanted_bytes = self._expected_bytes
        if begun_bytes >= SIZE_BYTES:
            wanted_bytes = SIZE_BYTES + _SIZE(self._buffer, self._first)[0]
        is_free = sys.getrefcount(self._buffer) == self._own_references
        if is_free and not begun_bytes:
            self._first = self._end = 0
        if self._first + wanted_bytes > len(self._buffer):
            self._move(begun_bytes, wanted_bytes, is_free=is_free)
        self._stop = self._first + wanted_bytes
        self._needs_room = False

    def _move(self, begun_bytes: int, wanted_bytes: int, *, is_free: bool) -> None:
        if is_free and wanted_bytes <= len(self._buffer):
            self._buffer.move(0, self._first, begun_bytes)
            self._first, self._end = 0, begun_bytes
            return
        begun = self._view[self._first : self._end]
        self._take_new_buffer(wanted_bytes)
        self._view[:begun_bytes] = begun
        self._end = begun_bytes

    def _take_new_buffer(self, size_bytes: int) -> None:
        self._buffer = mmap(-1, size_bytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self._view = memoryview(self._buffer)
        self._own_references = sys.getrefcount(self._buffer)
        self._first = self._end = 0


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

    @property
    def is_empty(self) -> bool:
        """Whether no byte is kept or waits, and no large frame arrives."""
        return not (
            self.waiting or self._missing_bytes or self._size_part or self.large is not None
        )

    def add(self, data: bytes, position: int, end: int) -> None:
        """Add the unserved rest of received bytes; nothing is in front of it."""
        self._sort(data, position, end)

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


# --------------------------------------------------------------------------------------------------
# Client ids in the frames of one connection: usually identical, so the bytes are compared with
# the previous ones instead of parsed
#
# Source: org.apache.kafka.common.requests.RequestHeader.

FLEXIBLE_HEADER = 2
"""The request header version that ends with tagged fields."""
CLIENT_ID_SIZE_BYTES = 2
ClientBytes = tuple[bytes, int, str | None]
"""The client id as bytes; the position of the body in a frame, including the size; and the decoded
client id.
"""
CLIENT_ID_POSITION = 12
"""The position of the client id's length in a frame; from there to the body all requests of a
client are usually identical.
"""
ClientOf = Callable[[Buffer, int, int], ClientBytes]
"""Returns the client id of the frame at a position of a buffer, by request header version."""
UNKNOWN_CLIENT: ClientBytes = (b"", CLIENT_ID_POSITION + 1, None)
"""Matches no frame, because no frame has zero bytes there."""


class ClientNames:
    """The latest client ids of a connection, by request header version."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known = [UNKNOWN_CLIENT] * (FLEXIBLE_HEADER + 1)

    def of(self, buffer: Buffer, position: int, header_version: int) -> ClientBytes:
        """Return the client id of the frame at `position`; UNKNOWN_CLIENT if the header has other
        content than a client id.
        """
        position += CLIENT_ID_POSITION
        known = self._known[header_version]
        if buffer[position : position - CLIENT_ID_POSITION + known[1]] == known[0]:
            return known
        size = int.from_bytes(buffer[position : position + CLIENT_ID_SIZE_BYTES], signed=True)
        name_end = position + CLIENT_ID_SIZE_BYTES + max(size, 0)
        end = name_end + (header_version == FLEXIBLE_HEADER)
        raw = buffer[position:end]
        if len(raw) != end - position or any(buffer[name_end:end]):
            return UNKNOWN_CLIENT
        try:
            name = buffer[position + CLIENT_ID_SIZE_BYTES : name_end].decode()
        except UnicodeDecodeError:
            return UNKNOWN_CLIENT
        found = self._known[header_version] = (
            raw,
            CLIENT_ID_POSITION + len(raw),
            None if size < 0 else name,
        )
        return found
