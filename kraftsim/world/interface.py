"""The world as node code sees it: four small protocols, implemented once for real machines and once for virtual time."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Protocol, TypeVar

from kraftsim.events.event import Event

T = TypeVar("T")
Chunk = bytes | bytearray | memoryview


class Clock(Protocol):
    """Time of this node. The wall clock may be wrong and may jump; the monotonic clock never goes back."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970 by this node's wall clock (record timestamps, expiry)."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since some fixed moment (time-outs, sessions)."""
        ...

    def monotonic_ns(self) -> int:
        """Return nanoseconds since the run began."""
        ...


class FileSlice(Protocol):
    """Bytes of a file that nobody has read. They stay what they are, whatever happens to the file meanwhile."""

    def __len__(self) -> int:
        """Return how many bytes they are."""
        ...

    def read(self) -> bytes:
        """Return them. Raises OSError."""
        ...

    def send(self, socket_descriptor: int, first: int) -> int:
        """Send what a socket takes of them, from byte `first` on, and return how many it took: at least one. Raises OSError: the socket is full,
        or gone, or the file cannot be read."""
        ...


class File(Protocol):
    """An open file that grows at its end. Writes are visible at once and durable only after `flush`."""

    path: str

    @property
    def size_bytes(self) -> int:
        """Length of the file as this process sees it."""
        ...

    def append(self, chunks: Sequence[Chunk]) -> int:
        """Write the chunks at the end, in order, and return the position of the first byte. Raises OSError; then a part may be written."""
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return up to size_bytes from position; fewer only at the end of the file."""
        ...

    def slice(self, position: int, size_bytes: int) -> Chunk | FileSlice:
        """Return so many bytes from position, which are in the file, in the form in which they are best sent."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to size_bytes."""
        ...

    async def flush(self) -> None:
        """Make everything appended before this call durable. Raises OSError: then what was not durable may be lost for good (fsyncgate)."""
        ...

    def close(self) -> None:
        """Give the file back; does not flush."""
        ...


class Disk(Protocol):
    """The data directory of one node. Paths are relative, with '/' between parts; parents are made on demand."""

    def open(self, path: str) -> File:
        """Open a file for appending and reading, creating it if it is absent."""
        ...

    def exists(self, path: str) -> bool:
        """Tell whether there is a file at path."""
        ...

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted; an absent directory is empty. '' is the root."""
        ...

    def read(self, path: str) -> bytes:
        """Return a whole file. Raises FileNotFoundError."""
        ...

    async def replace(self, path: str, data: bytes) -> None:
        """Write a whole file so that after any crash either the old or the new one is there.

        Temporary file, flush, rename, flush of the directory; replacements of one path happen in the order of the calls.
        """
        ...

    def remove(self, path: str) -> None:
        """Delete a file; it may come back after a power loss until the directory is flushed. Raises FileNotFoundError."""
        ...

    async def rename(self, path: str, new_path: str) -> None:
        """Give a file another name in its directory, durably; a file of that name goes. Flush the file before. Raises FileNotFoundError."""
        ...

    def move_directory(self, directory: str, new_directory: str) -> None:
        """Give a directory of the root another name, in which there is no file yet; durable once the root is flushed. Close its files before."""
        ...

    async def flush_directory(self, directory: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        ...

    def space(self) -> tuple[int, int]:
        """Return how many bytes there are altogether, and how many of them are free. Raises OSError."""
        ...


class ObjectStore(Protocol):
    """A store of objects that all nodes reach: whole ones are written, any part of one is read. Keys are paths with '/' between their parts.

    Every call is a request to somewhere else: it takes time, and may fail with an OSError whether or not it was carried out.
    """

    async def put(self, key: str, pieces: Sequence[Chunk | FileSlice]) -> None:
        """Write an object, in the place of one of that key if there is one. Raises OSError."""
        ...

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        """Return so many bytes from `first` on, fewer only at the end; None: all there are. Raises FileNotFoundError, OSError."""
        ...

    async def delete(self, key: str) -> None:
        """Delete an object; one that is not there is deleted. Raises OSError."""
        ...

    async def list(self, prefix: str) -> list[str]:
        """Return the keys that begin so, sorted. What was written or deleted just now may be missing or still be there. Raises OSError."""
        ...


class World(Protocol):
    """Everything a node may touch besides the network."""

    run: str
    node: str
    incarnation: int
    clock: Clock
    disk: Disk

    def random(self, purpose: str) -> Random:
        """Return the stream of random numbers for a purpose; streams are keyed by (seed, node, incarnation, purpose) and independent."""
        ...

    def note(self, event: Event) -> None:
        """Add a fact to the event log. Buffered; see `flush_events`."""
        ...

    def flush_events(self) -> None:
        """Hand the buffered facts to the operating system.

        Called before answers leave, so that an acknowledged fact is never unlogged after kill -9.
        """
        ...

    def elsewhere(self, directory: str) -> "World":
        """Return this world with another directory of the node as its disk, by its path on the machine. Raises OSError."""
        ...

    def objects(self, location: str, settings: Mapping[str, str]) -> ObjectStore:
        """Return a store of objects: `file:DIRECTORY`, or `s3:BUCKET` with what its client is to be told. Raises OSError, ImportError."""
        ...

    async def aside(self, work: Callable[[], T]) -> T:
        """Return what a function returns, without holding the loop meanwhile: for what takes long, touches nothing else and needs no order."""
        ...

    async def breathe(self, place: str) -> None:
        """A named place where Kafka drops a lock: nothing in a real world, a scheduling choice in simulation."""
        ...
