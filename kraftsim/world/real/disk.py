"""The data directory of a node on a real disk.

Operations that wait for the disk run in a worker thread; everything else is a system call on the
page cache and runs at once.
"""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zlib import crc32

from kraftsim.world.interface import File
from kraftsim.world.real.file import TEMPORARY_SUFFIX, RealFile, ReportFlush, sync_directory
from kraftsim.world.subdirectory import checked, directory_of

SYNC_THREADS_MAX = 4
RENAME_THREADS = 4
"""Worker threads; each directory uses one of them, so that replacements in it keep the order of the
calls.
"""


class RealDisk:
    """Files under `root`. Paths outside of it raise ValueError.

    Without `is_durable` nothing waits for the disk: what is written survives the process, but not
    the machine.
    """

    def __init__(self, root: Path, *, is_durable: bool = True) -> None:
        self.root = root
        self.is_durable = is_durable
        root.mkdir(parents=True, exist_ok=True)
        self._flushes = ThreadPoolExecutor(SYNC_THREADS_MAX, thread_name_prefix="flush")
        self._renames = [
            ThreadPoolExecutor(1, thread_name_prefix="rename") for _ in range(RENAME_THREADS)
        ]
        self._unflushed_directories: set[str] = set()
        self.report_flush: ReportFlush | None = None
        """Called with the path, the operation and the seconds of each wait for the disk."""

    def open(self, path: str) -> File:
        """Open a file for appending and reading, creating it and its parents if they are absent."""
        self._make_directory(directory_of(checked(path)))
        executor = self._flushes if self.is_durable else None
        return RealFile(path, self._place(path), executor, self._on_flushed)

    def exists(self, path: str) -> bool:
        """Return whether there is a file at path."""
        return os.path.isfile(self._place(path))

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted; an absent directory is empty."""
        try:
            return sorted(os.listdir(self._place(directory)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        with open(self._place(path), "rb", buffering=0) as file:
            return file.readall()

    async def replace(self, path: str, data: bytes) -> None:
        """Replace a file atomically: after any crash either the old or the new content is there.

        One thread per directory keeps their order.
        """
        self._make_directory(directory_of(checked(path)))
        if not self.is_durable:
            _write_and_rename(self._place(path), data, (), is_durable=False)
            return
        places = self._take_unflushed(directory_of(path))
        thread = self._thread_of(directory_of(path))
        started_s = time.monotonic()
        await asyncio.get_running_loop().run_in_executor(
            thread, _write_and_rename, self._place(path), data, places
        )
        self._on_flushed(path, "replace", time.monotonic() - started_s)

    def remove(self, path: str) -> None:
        """Delete a file."""
        os.unlink(self._place(path))

    async def rename(self, path: str, new_path: str) -> None:
        """Rename a file in its directory, durably.

        It uses the thread of replacements there, so that both keep the order of the calls.
        """
        assert directory_of(checked(path)) == directory_of(checked(new_path)), (
            "a file stays in its directory"
        )
        if not self.is_durable:
            os.rename(self._place(path), self._place(new_path))
            return
        places = self._take_unflushed(directory_of(path))
        thread = self._thread_of(directory_of(path))
        started_s = time.monotonic()
        await asyncio.get_running_loop().run_in_executor(
            thread, _rename, self._place(path), self._place(new_path), places
        )
        self._on_flushed(path, "rename", time.monotonic() - started_s)

    def move_directory(self, directory: str, new_directory: str) -> None:
        """Rename a directory; an existing empty one of the new name is replaced."""
        os.rename(self._place(directory), self._place(new_directory))
        self._unflushed_directories.add(new_directory)

    async def flush_directory(self, directory: str) -> None:
        """Make creations, renames and removals in a directory durable, and the creation of the
        directory itself.
        """
        if not self.is_durable:
            return
        started_s = time.monotonic()
        await asyncio.get_running_loop().run_in_executor(
            self._thread_of(directory), _sync_directories, self._take_unflushed(directory)
        )
        self._on_flushed(directory, "flush of the directory", time.monotonic() - started_s)

    def space(self) -> tuple[int, int]:
        """Return the size of the file system, and its free space for unprivileged users."""
        found = os.statvfs(self.root)
        return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail

    def close(self) -> None:
        """Stop the worker threads.

        This waits for running replacements: the next incarnation must not see them later.
        """
        self._flushes.shutdown(wait=False)
        for thread in self._renames:
            thread.shutdown(wait=True, cancel_futures=True)

    def _on_flushed(self, path: str, operation: str, seconds: float) -> None:
        if self.report_flush is not None:
            self.report_flush(path, operation, seconds)

    def _thread_of(self, directory: str) -> ThreadPoolExecutor:
        return self._renames[crc32(directory.encode()) % RENAME_THREADS]

    def _place(self, path: str) -> str:
        return os.path.join(self.root, checked(path)) if path else str(self.root)

    def _make_directory(self, directory: str) -> None:
        if not directory or os.path.isdir(self._place(directory)):
            return
        self._make_directory(directory_of(directory))
        os.makedirs(self._place(directory), exist_ok=True)
        self._unflushed_directories.add(directory)

    def _take_unflushed(self, directory: str) -> tuple[str, ...]:
        """Return the directories to flush so that the directory's entries are durable: itself, and
        parents while their entries are new.
        """
        places = [self._place(directory)]
        while directory in self._unflushed_directories:
            self._unflushed_directories.remove(directory)
            directory = directory_of(directory)
            places.append(self._place(directory))
        return tuple(places)


def _write_and_rename(
    place: str, data: bytes, directories: tuple[str, ...], *, is_durable: bool = True
) -> None:
    with open(place + TEMPORARY_SUFFIX, "wb", buffering=0) as file:
        written = file.write(data)
        while written < len(data):
            written += file.write(memoryview(data)[written:])
        if is_durable:
            os.fsync(file.fileno())
    os.rename(place + TEMPORARY_SUFFIX, place)
    _sync_directories(directories)


def _rename(place: str, new_place: str, directories: tuple[str, ...]) -> None:
    os.rename(place, new_place)
    _sync_directories(directories)


def _sync_directories(places: tuple[str, ...]) -> None:
    for place in places:
        sync_directory(place)
