"""Real object stores: a directory that all nodes of this machine share, or a bucket of an
S3-compatible service.

Disk and network calls run in worker threads. The S3 client is boto3, which the extra `tiered`
installs.
"""

import asyncio
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from kraftsim.world.interface import Chunk, FileSlice, bytes_of
from kraftsim.world.subdirectory import checked

T = TypeVar("T")
THREADS_MAX = 8
DIRECTORY, S3 = "file", "s3"


class BlockingObjects(Protocol):
    """The interface of a kind of store, called in worker threads."""

    def put(self, key: str, pieces: Sequence[Chunk | FileSlice]) -> None:
        """Write an object."""
        ...

    def get(self, key: str, first: int, size_bytes: int | None) -> bytes:
        """Return a part of an object."""
        ...

    def delete(self, key: str) -> None:
        """Delete an object."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Return the keys with a prefix."""
        ...


class RealObjects:
    """Implements `kraftsim.world.interface.ObjectStore` with worker threads."""

    def __init__(self, blocking: BlockingObjects) -> None:
        self._blocking = blocking
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="objects")

    async def put(self, key: str, pieces: Sequence[Chunk | FileSlice]) -> None:
        """Write an object."""
        await self._in_thread(lambda: self._blocking.put(key, pieces))

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        """Return a part of an object."""
        return await self._in_thread(lambda: self._blocking.get(key, first, size_bytes))

    async def delete(self, key: str) -> None:
        """Delete an object."""
        await self._in_thread(lambda: self._blocking.delete(key))

    async def list(self, prefix: str) -> list[str]:
        """Return the keys with a prefix."""
        return await self._in_thread(lambda: self._blocking.list(prefix))

    def close(self) -> None:
        """Stop the threads, after finishing running calls."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


class DirectoryObjects:
    """Objects as files below a directory.

    A file is renamed to its final name when it is complete.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def put(self, key: str, pieces: Sequence[Chunk | FileSlice]) -> None:
        """Write an object."""
        place = self._root / checked(key)
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_name(f".{place.name}.{os.getpid()}")
        with open(unfinished, "wb", buffering=0) as file:
            for piece in pieces:
                rest = memoryview(bytes_of(piece))
                while rest:
                    rest = rest[file.write(rest) or 0 :]
            os.fdatasync(file.fileno())
        unfinished.replace(place)

    def get(self, key: str, first: int, size_bytes: int | None) -> bytes:
        """Return a part of an object."""
        with open(self._root / checked(key), "rb", buffering=0) as file:
            file.seek(first)
            return file.readall() if size_bytes is None else _read_up_to(file, size_bytes)

    def delete(self, key: str) -> None:
        """Delete an object, and its directory if that is empty then."""
        place = self._root / checked(key)
        place.unlink(missing_ok=True)
        try:
            place.parent.rmdir()
        except OSError:
            return  # it contains other objects

    def list(self, prefix: str) -> list[str]:
        """Return the keys with a prefix."""
        found = (
            str(place.relative_to(self._root))
            for place in self._root.rglob("*")
            if place.is_file() and not place.name.startswith(".")
        )
        return sorted(key for key in found if key.startswith(prefix))


class PieceReader(io.RawIOBase):
    """Concatenated pieces as a file object, as clients of other stores need it.

    It can seek back, for they may have to restart.
    """

    def __init__(self, pieces: Sequence[Chunk | FileSlice]) -> None:
        self._pieces = pieces
        self._size_bytes = sum(len(piece) for piece in pieces)
        self._position = 0
        self._read = -1
        self._bytes = memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek to a position."""
        self._position = max(
            offset
            + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence],
            0,
        )
        return self._position

    # override: typeshed: any writable buffer; callers pass these two
    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill a buffer up to the end of the current piece."""
        begin = 0
        for index, piece in enumerate(self._pieces):
            if self._position < begin + len(piece):
                if self._read != index:
                    self._read, self._bytes = index, memoryview(bytes_of(piece))
                part = self._bytes[self._position - begin :][: len(buffer)]
                buffer[: len(part)] = part
                self._position += len(part)
                return len(part)
            begin += len(piece)
        return 0


def open_objects(location: str, settings: Mapping[str, str]) -> RealObjects:
    """Open a store by its location.

    Raises OSError; ImportError without the library that it needs.
    """
    kind, _, place = location.partition(":")
    if kind == DIRECTORY:
        return RealObjects(DirectoryObjects(Path(place)))
    assert kind == S3, f"a location is file:DIRECTORY or s3:BUCKET, not {location}"
    from kraftsim.world.real.s3_objects import S3Objects

    return RealObjects(S3Objects(place, settings))


def _read_up_to(file: io.FileIO, size_bytes: int) -> bytes:
    return b"".join(_parts(file, size_bytes))


def _parts(file: io.FileIO, size_bytes: int) -> Iterator[bytes]:
    while size_bytes and (data := file.read(size_bytes)):
        yield data
        size_bytes -= len(data)
