"""Sends file slices over a connection with sendfile, in order with ordinary chunks.

A transport of the event loop cannot do that for a stream that continues afterwards, so the sender
writes to the transport's socket itself, while the transport has no pending data. It duplicates the
descriptor, because a loop watches a descriptor for one owner only.

Source: org.apache.kafka.common.record.FileRecords.writeTo,
org.apache.kafka.common.network.PlaintextTransportLayer.transferFrom.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable

from kraftsim.world.interface import Chunk, FileSlice

TURN_BYTES_MAX = 4 * 1024 * 1024
"""The bytes sent before other connections get their turn."""
PLAIN = (bytes, bytearray, memoryview)


class FileSender:
    """The sender of one connection. `on_end` is called once for each `send` that did not complete
    immediately: with None, or the OSError that ended it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        on_end: Callable[[OSError | None], None],
    ) -> None:
        """`descriptor` is the transport's; it is duplicated."""
        self._loop = loop
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=os.dup(descriptor))
        self._on_end = on_end
        self._chunks: deque[Chunk | FileSlice] = deque()
        self._first = 0
        """The bytes of the first chunk that are sent."""
        self._is_waiting = False

    @property
    def is_busy(self) -> bool:
        """Whether data is pending: no other writer may use the socket meanwhile."""
        return bool(self._chunks)

    def send(self, chunks: Iterable[Chunk | FileSlice]) -> None:
        """Send chunks in order, as far as the socket accepts them now, and the rest later.

        Raises OSError if the connection is broken.
        """
        assert not self._chunks, "one answer after the other"
        self._chunks.extend(_joined(chunks))
        self._advance()
        if self._chunks:
            self._is_waiting = True
            self._loop.add_writer(self._socket.fileno(), self._on_writable)

    def close(self) -> None:
        """Stop immediately, and close the descriptor."""
        self._chunks.clear()
        self._stop_waiting()
        self._socket.close()

    def _on_writable(self) -> None:
        try:
            self._advance()
        except OSError as broken:
            self._chunks.clear()
            self._stop_waiting()
            self._on_end(broken)
            return
        if not self._chunks:
            self._stop_waiting()
            self._on_end(None)

    def _advance(self) -> None:
        left_bytes = TURN_BYTES_MAX
        try:
            while self._chunks and left_bytes > 0:
                left_bytes -= self._send_some(self._chunks[0])
        except BlockingIOError:
            pass

    def _send_some(self, chunk: Chunk | FileSlice) -> int:
        if isinstance(chunk, PLAIN):
            more = socket.MSG_MORE if len(self._chunks) > 1 else 0
            sent_bytes = self._socket.send(memoryview(chunk)[self._first :], more)
        else:
            sent_bytes = chunk.send(self._socket.fileno(), self._first)
        self._first += sent_bytes
        if self._first == len(chunk):
            self._chunks.popleft()
            self._first = 0
        return sent_bytes

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._socket.fileno())


def holds_slices(chunks: Iterable[Chunk | FileSlice]) -> bool:
    """Return whether there are file slices, which a transport cannot write."""
    for chunk in chunks:  # noqa: SIM110  (a generator would cost more than the answer)
        if not isinstance(chunk, PLAIN):
            return True
    return False


def read_slices(chunks: Iterable[Chunk | FileSlice]) -> list[Chunk]:
    """Read file slices into memory, for a transport. Raises OSError."""
    return [chunk if isinstance(chunk, PLAIN) else chunk.read() for chunk in chunks]


def _joined(chunks: Iterable[Chunk | FileSlice]) -> Iterable[Chunk | FileSlice]:
    """Join adjacent chunks that are not slices: they are small."""
    plain: list[Chunk] = []
    for chunk in chunks:
        if isinstance(chunk, PLAIN):
            plain.append(chunk)
            continue
        if plain:
            yield b"".join(plain)
            plain = []
        yield chunk
    if plain:
        yield b"".join(plain)
