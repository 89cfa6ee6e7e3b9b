"""Directories of a disk: paths that stay inside one, and one as a disk of its own, for a simulated
node in place of a real node's second directory.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar

from kraftsim.events.event import Event
from kraftsim.world.interface import Disk, File, ObjectStore, World, YieldPoint


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


# --------------------------------------------------------------------------------------------------
# Paths on a node's disk: relative, '/' between parts, never out of the data directory


def checked(path: str) -> str:
    """Return the path if it stays inside the data directory.

    Raises ValueError for an absolute path, an empty part, '.' or '..'.
    """
    for part in path.split("/"):
        if part in ("", ".", "..") or "\0" in part:
            raise ValueError(f"{path!r} is not a path inside a data directory")
    return path


def directory_of(path: str) -> str:
    """Return the directory a path is in; '' is the root."""
    return path.rpartition("/")[0]


# --------------------------------------------------------------------------------------------------
# The world of a node with another of its directories in place of the data directory, for files
# that Kafka can keep apart: `metadata.log.dir`

T = TypeVar("T")


class RelocatedWorld:
    """Implements `kraftsim.world.interface.World`: everything is the node's, except the disk."""

    def __init__(self, world: World, disk: Disk) -> None:
        self.run = world.run
        self.node = world.node
        self.incarnation = world.incarnation
        self.clock = world.clock
        self.disk = disk
        self._world = world

    def random(self, purpose: str) -> Random:
        """Return the stream of a purpose."""
        return self._world.random(purpose)

    def emit(self, event: Event) -> None:
        """Emit an event to the event log."""
        self._world.emit(event)

    def flush_events(self) -> None:
        """Write the buffered events to the operating system."""
        self._world.flush_events()

    async def yield_point(self, place: YieldPoint) -> None:
        """A place where another thread of Kafka may run before this one goes on."""
        await self._world.yield_point(place)

    def hand_over(self, place: YieldPoint, work: Callable[[], object]) -> None:
        """Do work that another thread of Kafka may do later."""
        self._world.hand_over(place, work)

    async def aside(self, work: Callable[[], T]) -> T:
        """Return the result of a function, without blocking the loop."""
        return await self._world.aside(work)

    def objects(self, location: str, settings: Mapping[str, str]) -> ObjectStore:
        """Return a store of objects."""
        return self._world.objects(location, settings)

    def elsewhere(self, directory: str) -> World:
        """Return the same with another directory."""
        return self._world.elsewhere(directory)
