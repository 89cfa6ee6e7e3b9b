"""A directory of a disk as a disk of its own: for a simulated node, in place of a real node's
second directory.
"""

from kraftsim.world.interface import Disk, File
from kraftsim.world.paths import checked


class Subdirectory:
    """Implements `kraftsim.world.interface.Disk` below a directory of another disk, with which it
    shares power, space and faults.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = checked(directory)

    def open(self, path: str) -> File:
        """Open a file, creating it if it is absent. Its path is relative to this directory."""
        file = self._disk.open(self._place(path))
        file.path = path
        return file

    def exists(self, path: str) -> bool:
        """Return whether there is a file at path."""
        return self._disk.exists(self._place(path))

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return self._disk.list(self._place(directory) if directory else self._directory)

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        return self._disk.read(self._place(path))

    async def replace(self, path: str, data: bytes) -> None:
        """Replace a file atomically: after any crash either the old or the new content is there."""
        await self._disk.replace(self._place(path), data)

    def remove(self, path: str) -> None:
        """Delete a file."""
        self._disk.remove(self._place(path))

    async def rename(self, path: str, new_path: str) -> None:
        """Rename a file in its directory, durably."""
        await self._disk.rename(self._place(path), self._place(new_path))

    def move_directory(self, directory: str, new_directory: str) -> None:
        """Rename a directory."""
        self._disk.move_directory(self._place(directory), self._place(new_directory))

    def space(self) -> tuple[int, int]:
        """Return the size of the whole disk, and its free space."""
        return self._disk.space()

    async def flush_directory(self, directory: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        await self._disk.flush_directory(self._place(directory) if directory else self._directory)

    def _place(self, path: str) -> str:
        return f"{self._directory}/{checked(path)}"
