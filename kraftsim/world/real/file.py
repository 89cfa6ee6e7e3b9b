"""An append-only file on a real disk, with group commit: flushes that wait for each other's fdatasync share the next one."""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import Executor

from kraftsim.world.interface import Chunk

CHUNKS_MAX = os.sysconf("SC_IOV_MAX")
"""A writev takes no more chunks than this."""


class RealFile:
    """One open file. Reads and writes go straight to the kernel, which keeps them in its page cache until they are flushed."""

    def __init__(self, path: str, descriptor: int, executor: Executor) -> None:
        self.path = path
        self._descriptor = descriptor
        self._executor = executor
        self._syncs_in_flight = 0
        self._running: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None
        self._is_closed = False

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return os.fstat(self._descriptor).st_size

    def append(self, chunks: Sequence[Chunk]) -> int:
        """Write the chunks at the end and return the position of the first byte."""
        assert not self._is_closed, f"{self.path} is closed"
        total = 0
        for first in range(0, len(chunks), CHUNKS_MAX):
            total += self._write_all(chunks[first : first + CHUNKS_MAX])
        end_position = os.lseek(self._descriptor, 0, os.SEEK_CUR) if total else self.size_bytes
        return end_position - total

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return up to size_bytes from position; fewer only at the end of the file."""
        data = os.pread(self._descriptor, size_bytes, position)
        if len(data) == size_bytes or not data:
            return data
        parts = [data]
        missing = size_bytes - len(data)
        while missing and (data := os.pread(self._descriptor, missing, position + size_bytes - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to size_bytes."""
        assert size_bytes <= self.size_bytes, f"{self.path} has fewer than {size_bytes} bytes"
        os.ftruncate(self._descriptor, size_bytes)

    async def flush(self) -> None:
        """Make everything appended before this call durable. A flush that runs already may have begun too early, so callers wait for the next one."""
        loop = asyncio.get_running_loop()
        if self._running is None:
            self._running = self._start_sync(loop)
            shared = self._running
        else:
            if self._next is None:
                self._next = loop.create_future()
            shared = self._next
        await asyncio.shield(shared)

    def close(self) -> None:
        """Give the file back, once no flush needs it any more."""
        self._is_closed = True
        if self._running is None and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write_all(self, chunks: Sequence[Chunk]) -> int:
        total = sum(len(chunk) for chunk in chunks)
        written = os.writev(self._descriptor, chunks) if total else 0
        if written < total:
            rest = memoryview(b"".join(chunks))
            while written < total:
                written += os.write(self._descriptor, rest[written:])
        return total

    def _start_sync(self, loop: asyncio.AbstractEventLoop, result: "asyncio.Future[None] | None" = None) -> "asyncio.Future[None]":
        result = result if result is not None else loop.create_future()
        result.add_done_callback(_retrieve)
        sync = loop.run_in_executor(self._executor, os.fdatasync, self._descriptor)
        sync.add_done_callback(lambda done: self._on_synced(loop, result, done))
        return result

    def _on_synced(self, loop: asyncio.AbstractEventLoop, result: "asyncio.Future[None]", done: "asyncio.Future[None]") -> None:
        self._running = None
        if self._next is not None:
            self._running, self._next = self._next, None
            self._start_sync(loop, self._running)
        elif self._is_closed:
            self.close()
        if result.done():
            return
        if done.cancelled():
            result.cancel()
        elif (trouble := done.exception()) is not None:
            result.set_exception(trouble)
        else:
            result.set_result(None)


def _retrieve(result: "asyncio.Future[None]") -> None:
    """Look at the outcome, so that a flush whose callers were all cancelled is not reported as forgotten."""
    if not result.cancelled():
        result.exception()
