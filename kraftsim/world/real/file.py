"""An append-only file on a real disk, with group commit: callers that wait for a running fdatasync
share the next one.
"""

import asyncio
import errno
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from kraftsim.world.interface import Chunk

ReportFlush = Callable[[str, str, float], None]
"""Called with a path, an operation and the seconds that it waited for the disk."""
TEMPORARY_SUFFIX = ".tmp"
"""A file of this name is an unfinished replacement; it is never read."""
COPY_CHUNK_BYTES = 1024 * 1024
"""The chunk size of file copies."""
CHUNKS_MAX = os.sysconf("SC_IOV_MAX")
"""The maximum number of chunks of a writev."""


class Descriptor:
    """An open descriptor, closed after its last use: by a file, its slices that are being sent to
    clients, a running flush.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)

    def sync(self) -> None:
        """Make the written bytes durable."""
        os.fdatasync(self.number)

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return up to size_bytes from position; fewer only at the end of the file."""
        data = os.pread(self.number, size_bytes, position)
        if len(data) == size_bytes or not data:
            return data
        parts = [data]
        missing = size_bytes - len(data)
        while missing and (data := os.pread(self.number, missing, position + size_bytes - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)


class RealSlice:
    """Implements `kraftsim.world.interface.FileSlice` with sendfile: the kernel sends the pages of
    its cache to the socket.
    """

    __slots__ = ("_descriptor", "_position", "_size_bytes")

    def __init__(self, descriptor: Descriptor, position: int, size_bytes: int) -> None:
        self._descriptor = descriptor
        self._position = position
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def read(self) -> bytes:
        """Return the bytes."""
        data = self._descriptor.read(self._position, self._size_bytes)
        if len(data) != self._size_bytes:
            raise _truncated_error()
        return data

    def send(self, socket_descriptor: int, first: int) -> int:
        """Send as much as a socket accepts, from byte `first` on."""
        sent_bytes = os.sendfile(
            socket_descriptor,
            self._descriptor.number,
            self._position + first,
            self._size_bytes - first,
        )
        if not sent_bytes:
            raise _truncated_error()
        return sent_bytes


class RealFile:
    """One open file.

    Reads and writes are system calls, and the kernel keeps the data in its page cache until it is
    flushed.

    Its path on this machine is `place`. Once slices were returned, pages of the file may be in
    socket queues, even after they count as sent: such a file is truncated by replacing it with
    another one.
    """

    def __init__(
        self, path: str, place: str, executor: Executor | None, report_flush: ReportFlush
    ) -> None:
        self.path = path
        self._place = place
        self._opened: Descriptor | None = _open(place)
        self._executor = executor
        self._report_flush = report_flush
        self._has_given_slices = False
        self._syncs_in_flight = 0
        self._running: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return os.fstat(self._descriptor.number).st_size

    def append(self, chunks: Sequence[Chunk]) -> int:
        """Append the chunks and return the position of the first byte."""
        opened = self._opened
        assert opened is not None, f"{self.path} is closed"
        if len(chunks) <= CHUNKS_MAX:
            total = self._write_all(opened.number, chunks)
        else:
            total = 0
            for first in range(0, len(chunks), CHUNKS_MAX):
                total += self._write_all(opened.number, chunks[first : first + CHUNKS_MAX])
        end_position = os.lseek(opened.number, 0, os.SEEK_CUR) if total else self.size_bytes
        return end_position - total

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return up to size_bytes from position; fewer only at the end of the file."""
        return self._descriptor.read(position, size_bytes)

    def slice(self, position: int, size_bytes: int) -> RealSlice:
        """Return a slice of the file without reading it."""
        self._has_given_slices = True
        return RealSlice(self._descriptor, position, size_bytes)

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file to size_bytes."""
        assert size_bytes <= self.size_bytes, f"{self.path} has fewer than {size_bytes} bytes"
        if self._has_given_slices:
            self._put_copy_in_place(size_bytes)
        else:
            os.ftruncate(self._descriptor.number, size_bytes)

    async def flush(self) -> None:
        """Make everything appended before this call durable.

        A running flush may have begun too early, so callers wait for the next one. Without an
        executor it does nothing: the page cache is enough.
        """
        descriptor = self._descriptor
        if self._executor is None:
            return
        loop = asyncio.get_running_loop()
        if self._running is None:
            self._running = self._start_sync(loop, descriptor)
            shared = self._running
        else:
            if self._next is None:
                self._next = loop.create_future()
            shared = self._next
        await asyncio.shield(shared)

    def close(self) -> None:
        """Close the file; slices and a running flush keep the descriptor open until they are
        done.
        """
        self._opened = None

    @property
    def _descriptor(self) -> Descriptor:
        if self._opened is None:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._opened

    def _put_copy_in_place(self, size_bytes: int) -> None:
        """Truncate the file without changing its present pages.

        The copy is durable before it is renamed.
        """
        before, after = self._descriptor, _open(self._place + TEMPORARY_SUFFIX, os.O_TRUNC)
        copied_bytes = 0
        while copied_bytes < size_bytes:
            window = before.read(copied_bytes, min(COPY_CHUNK_BYTES, size_bytes - copied_bytes))
            if not window:
                raise _truncated_error()
            copied_bytes += os.write(after.number, window)
        if self._executor is not None:
            after.sync()
        os.rename(self._place + TEMPORARY_SUFFIX, self._place)
        if self._executor is not None:
            sync_directory(os.path.dirname(self._place))
        self._opened = after
        self._has_given_slices = False

    @staticmethod
    def _write_all(descriptor: int, chunks: Sequence[Chunk]) -> int:
        total = sum(map(len, chunks))
        written = os.writev(descriptor, chunks) if total else 0
        if written < total:
            rest = memoryview(b"".join(chunks))
            while written < total:
                written += os.write(descriptor, rest[written:])
        return total

    def _start_sync(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: Descriptor,
        result: "asyncio.Future[None] | None" = None,
    ) -> "asyncio.Future[None]":
        result = result if result is not None else loop.create_future()
        result.add_done_callback(_retrieve)
        sync = loop.run_in_executor(self._executor, descriptor.sync)
        started_s = time.monotonic()
        sync.add_done_callback(
            lambda done: self._on_synced(loop, descriptor, result, done, started_s)
        )
        return result

    def _on_synced(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: Descriptor,
        result: "asyncio.Future[None]",
        done: "asyncio.Future[None]",
        started_s: float,
    ) -> None:
        self._report_flush(self.path, "flush", time.monotonic() - started_s)
        self._running = None
        if self._next is not None:
            self._running, self._next = self._next, None
            try:
                self._start_sync(loop, self._opened or descriptor, self._running)
            # the disk's threads have stopped: the node went down while a flush waited behind
            # another one
            except RuntimeError:
                self._running.set_exception(OSError(errno.EBADF, "the disk is closed", self.path))
                self._running = None
        if result.done():
            return
        if done.cancelled():
            result.cancel()
        elif (error := done.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(None)


def _retrieve(result: "asyncio.Future[None]") -> None:
    """Retrieve the exception, so that asyncio does not complain about a flush whose callers were
    all cancelled.
    """
    if not result.cancelled():
        result.exception()


def sync_directory(place: str) -> None:
    """Make creations, renames and removals in a directory durable."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open(place: str, *flags: int) -> Descriptor:
    return Descriptor(
        os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | sum(flags), 0o644)
    )


def _truncated_error() -> OSError:
    return OSError(errno.EIO, "another process truncated the file")
