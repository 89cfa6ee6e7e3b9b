"""Splits the ordered bytes of one direction into frames, and resynchronizes after a gap.

Source: org.apache.kafka.common.network.NetworkReceive: an int32 size, then so many bytes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from protocol.frames import SOCKET_REQUEST_MAX_BYTES

SIZE: Final = Struct(">i")
SEARCHED_BYTES_MAX: Final = 1 << 20
"""During resynchronization, a candidate is accepted or dropped when this many bytes follow it."""
MISSED_SHOWN_BYTES: Final = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFrame:
    """A frame with its size in front; `missing_bytes` of it were not captured, and are zeros from
    `first_missing` on.
    """

    content: bytes
    missing_bytes: int = 0
    first_missing: int = -1
    time_ns: int = 0
    packet: int = 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """Bytes between frames that were skipped; `start` is how they begin."""

    size: int
    reason: str
    start: bytes = b""


IsFrame = Callable[[bytes | bytearray, int, bool], bool | None]
"""Whether a frame begins at a position of a buffer; None: more bytes are needed.

True as third argument: a segment begins there.
"""


class FrameCutter:
    """One direction of a connection.

    `is_frame` recognizes frames; it is called only while the cutter is out of sync.
    """

    def __init__(self, is_frame: IsFrame, *, in_step: bool) -> None:
        self._is_frame = is_frame
        self._in_step = in_step
        self._buffer = bytearray()
        self._missing_bytes = 0
        self._first_missing = -1
        self._segment_starts: list[int] = []
        self._skipped_bytes = 0
        self._skipped_start = b""
        self._reason = "" if in_step else "the capture begins in the middle of the conversation"
        self._began = (0, 0)

    def feed(self, data: bytes, time_ns: int, packet: int) -> Iterator[RawFrame | Skipped]:
        """Take bytes in order; yield the frames that are complete now."""
        if not self._buffer:
            self._began = (time_ns, packet)
        if not self._in_step:
            self._segment_starts.append(len(self._buffer))
        self._buffer += data
        if not self._in_step:
            yield from self._search()
        if self._in_step:
            yield from self._split(time_ns, packet)

    def lose(self, missing_bytes: int, time_ns: int, packet: int) -> Iterator[RawFrame | Skipped]:
        """This many bytes are missing here, 0 if unknown; a gap inside one frame does not affect
        the next.
        """
        if not self._in_step:
            self._drop(len(self._buffer))
            return
        expected = self._expected_bytes()
        if expected is not None and 0 < missing_bytes <= expected - len(self._buffer):
            if self._first_missing < 0:
                self._first_missing = len(self._buffer)
            self._missing_bytes += missing_bytes
            self._buffer += bytes(missing_bytes)
            yield from self._split(time_ns, packet)
            return
        yield from self.abandon(f"{missing_bytes or 'unknown many'} bytes are not in the capture")

    def abandon(self, reason: str) -> Iterator[RawFrame | Skipped]:
        """Give up the incomplete frame, and look for the next."""
        if self._in_step and self._buffer:
            expected = self._expected_bytes() or len(self._buffer)
            if self._first_missing < 0:
                self._first_missing = len(self._buffer)
            yield self._frame(
                bytes(self._buffer), self._missing_bytes + expected - len(self._buffer)
            )
        self._buffer.clear()
        self._segment_starts.clear()
        self._in_step = False
        self._reason = reason

    def finish(self) -> Iterator[RawFrame | Skipped]:
        """The capture ends."""
        if self._in_step:
            if self._buffer:
                yield from self.abandon("the capture ends")
            return
        self._drop(len(self._buffer))
        yield from self._report()

    def _expected_bytes(self) -> int | None:
        """Return the length of the frame at the start of the buffer, including its size; None if it
        cannot be known.
        """
        if len(self._buffer) < SIZE.size:
            return None
        size: int = SIZE.unpack_from(self._buffer)[0]
        return SIZE.size + size if 0 <= size <= SOCKET_REQUEST_MAX_BYTES else None

    def _split(self, time_ns: int, packet: int) -> Iterator[RawFrame | Skipped]:
        while len(self._buffer) >= SIZE.size:
            expected = self._expected_bytes()
            if expected is None:
                start = bytes(self._buffer[:MISSED_SHOWN_BYTES])
                size = SIZE.unpack_from(self._buffer)[0]
                self._segment_starts.clear()
                self._in_step = False
                self._reason = f"a frame of {size} bytes"
                self._skipped_start = start
                self._drop(1)
                yield from self._search()
                if not self._in_step:
                    return
                continue
            if len(self._buffer) < expected:
                return
            content = bytes(self._buffer[:expected])
            del self._buffer[:expected]
            yield self._frame(content, self._missing_bytes)
            self._began = (time_ns, packet)

    def _frame(self, content: bytes, missing_bytes: int) -> RawFrame:
        time_ns, packet = self._began
        frame = RawFrame(
            content=content,
            missing_bytes=missing_bytes,
            first_missing=self._first_missing,
            time_ns=time_ns,
            packet=packet,
        )
        self._missing_bytes, self._first_missing = 0, -1
        return frame

    def _search(self) -> Iterator[RawFrame | Skipped]:
        """Look for the next frame: first where segments begin, then everywhere."""
        undecided: int | None = None
        for position in (*self._segment_starts, *self._zeros()):
            verdict = self._is_frame(self._buffer, position, position in self._segment_starts)
            if verdict:
                self._drop(position)
                self._segment_starts.clear()
                yield from self._report()
                self._in_step = True
                return
            if verdict is None and (undecided is None or position < undecided):
                undecided = position
        keep_from = max(0, len(self._buffer) - 3) if undecided is None else undecided
        if len(self._buffer) - keep_from > SEARCHED_BYTES_MAX:
            keep_from = len(self._buffer) - 3
        self._drop(keep_from)

    def _zeros(self) -> Iterator[int]:
        """Yield the positions where a size of less than 16 MiB can begin."""
        position = self._buffer.find(0)
        while position >= 0:
            yield position
            position = self._buffer.find(0, position + 1)

    def _drop(self, size: int) -> None:
        if not self._skipped_bytes and size and not self._skipped_start:
            self._skipped_start = bytes(self._buffer[:MISSED_SHOWN_BYTES])
        self._skipped_bytes += size
        del self._buffer[:size]
        self._segment_starts = [start - size for start in self._segment_starts if start >= size]

    def _report(self) -> Iterator[Skipped]:
        if self._skipped_bytes:
            yield Skipped(self._skipped_bytes, self._reason, self._skipped_start)
        self._skipped_bytes, self._skipped_start = 0, b""
