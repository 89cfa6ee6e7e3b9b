"""A disk that can be made to fail every operation, in place of one of a broker's log
directories.
"""

import errno
from collections.abc import Sequence

from kraftsim.world.interface import Chunk, Disk, File, FileSlice


class BreakableDisk:
    """Implements `kraftsim.world.interface.Disk` on top of another one, until it is `broken`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.broken: int | None = None
        """The errno with which every operation fails."""

    def check(self) -> None:
        if self.broken is not None:
            raise OSError(self.broken, errno.errorcode[self.broken])

    def open(self, path: str) -> File:
        self.check()
        return BreakableFile(self._disk.open(path), self)

    def exists(self, path: str) -> bool:
        self.check()
        return self._disk.exists(path)

    def list(self, directory: str) -> list[str]:
        self.check()
        return self._disk.list(directory)

    def read(self, path: str) -> bytes:
        self.check()
        return self._disk.read(path)

    async def replace(self, path: str, data: bytes) -> None:
        self.check()
        await self._disk.replace(path, data)

    def remove(self, path: str) -> None:
        self.check()
        self._disk.remove(path)

    async def rename(self, path: str, new_path: str) -> None:
        self.check()
        await self._disk.rename(path, new_path)

    def move_directory(self, directory: str, new_directory: str) -> None:
        self.check()
        self._disk.move_directory(directory, new_directory)

    async def flush_directory(self, directory: str) -> None:
        self.check()
        await self._disk.flush_directory(directory)

    def space(self) -> tuple[int, int]:
        self.check()
        return self._disk.space()


class BreakableFile:
    """A file on such a disk."""

    def __init__(self, file: File, disk: BreakableDisk) -> None:
        self._file = file
        self._disk = disk
        self.path = file.path

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def append(self, chunks: Sequence[Chunk]) -> int:
        self._disk.check()
        return self._file.append(chunks)

    def read(self, position: int, size_bytes: int) -> bytes:
        self._disk.check()
        return self._file.read(position, size_bytes)

    def slice(self, position: int, size_bytes: int) -> Chunk | FileSlice:
        self._disk.check()
        return self._file.slice(position, size_bytes)

    def truncate(self, size_bytes: int) -> None:
        self._disk.check()
        self._file.truncate(size_bytes)

    async def flush(self) -> None:
        self._disk.check()
        await self._file.flush()

    def close(self) -> None:
        self._file.close()
