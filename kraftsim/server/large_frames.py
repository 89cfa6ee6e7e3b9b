"""Receives large frames directly into buffers of their size, so that the copy out of the socket is
the last one before the disk.

The buffer is an anonymous mapping that uses no memory until bytes arrive: a client that announces a
hundred megabytes and sends ten bytes occupies one page. A producer's next batch is usually as large
as its last one, so the connection continues to read one frame at a time, each from the start of the
same mapping, until small frames arrive.

Source: org.apache.kafka.common.network.NetworkReceive (allocates the announced size),
queued.max.request.bytes (its remedy).
"""

import asyncio
import sys
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct

LARGE_FRAME_BYTES = 128 * 1024
"""From this size on a saved copy is worth the change of the receiver (measured)."""
KEPT_BYTES_MAX = 4 * 1024 * 1024
"""A mapping up to this size is reused: faulting in new pages costs about as much as the saved
copy.
"""
SIZE_BYTES = 4
_SIZE = Struct(">i").unpack_from
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
        on_received: Callable[[], None],
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
