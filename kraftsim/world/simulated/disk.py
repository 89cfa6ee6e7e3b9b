"""The disk of a simulated host, with a page cache, latencies and the ways in which disks fail.

Names are durable only after a flush of their directory, as POSIX has it. A process works on the files of its own incarnation: when it dies, the
next one gets a copy of what is left, so that code of a dead process that has not noticed yet cannot change anything.
"""

import asyncio
import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVarTuple, Unpack

from kraftsim.world.interface import Chunk, File
from kraftsim.world.paths import checked, directory_of
from kraftsim.world.simulated.file_class import FileClass, file_class
from kraftsim.world.simulated.inode import Inode, Sync

if TYPE_CHECKING:
    from kraftsim.world.simulated.host import Process
    from kraftsim.world.simulated.loop import VirtualLoop

Ts = TypeVarTuple("Ts")

TEMPORARY_SUFFIX = ".tmp"
NAMES_KEPT = 0.3
"""How often the journal of the file system had been written by itself before the power went."""

Bite = Callable[[str], None]
DiskWatch = Callable[[str, FileClass, str], None]
"""Is told of (operation, file class, moment): 'write', 'flush' or 'rename', 'before' or 'after'."""


@dataclass(kw_only=True, slots=True)
class DiskFaults:
    """What is wrong with a disk now. A function in place of None is told whenever the fault changes an outcome."""

    slowness: float = 1.0
    slow: Bite | None = None
    full: Bite | None = None
    flush_errors: int = 0
    flush_error_class: FileClass | None = None
    flush_error: Bite | None = None


class Platter:
    """What outlives a process: names and files. `names` is what processes see, `durable_names` what a power loss leaves for sure."""

    def __init__(self, *, flush_ns: tuple[int, int]) -> None:
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.flush_ns = flush_ns
        self.faults = DiskFaults()
        self.watch: DiskWatch | None = None

    @property
    def unflushed_bytes(self) -> int:
        """How many bytes a power loss may take."""
        return sum(inode.unflushed_bytes for inode in self.names.values())

    def after_kill(self) -> "Platter":
        """Return the disk as the next process finds it when only the process died."""
        copies = {id(inode): inode.copy() for names in (self.names, self.durable_names) for inode in names.values()}
        left = self._successor()
        left.names = {path: copies[id(inode)] for path, inode in self.names.items()}
        left.durable_names = {path: copies[id(inode)] for path, inode in self.durable_names.items()}
        return left

    def after_power_loss(self, process: "Process") -> tuple["Platter", int]:
        """Return the disk as the next process finds it when the power went, and how many bytes that processes had seen are gone."""
        draw = process.random("power loss")
        survivors = self.names if draw.random() < NAMES_KEPT else self.durable_names
        lost_bytes = sum(len(inode.cache) for path, inode in self.names.items() if survivors.get(path) is not inode)
        left = self._successor()
        images: dict[int, Inode] = {}
        for path in sorted(survivors):
            inode = survivors[path]
            if id(inode) not in images:
                images[id(inode)], lost = inode.after_power_loss(draw)
                lost_bytes += lost
            left.names[path] = images[id(inode)]
        left.durable_names = dict(left.names)
        return left, lost_bytes

    def _successor(self) -> "Platter":
        left = Platter(flush_ns=self.flush_ns)
        left.faults = self.faults
        left.watch = self.watch
        return left


class SimulatedDisk:
    """The disk as one process sees it; implements `kraftsim.world.interface.Disk`."""

    def __init__(self, loop: "VirtualLoop", process: "Process") -> None:
        self._loop = loop
        self._process = process
        self._platter = process.host.platter

    def open(self, path: str) -> File:
        """Open a file, creating it if it is absent."""
        return SimulatedFile(path, self._inode(checked(path)), self)

    def exists(self, path: str) -> bool:
        """Tell whether there is a file at path."""
        return checked(path) in self._platter.names

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        prefix = checked(directory) + "/" if directory else ""
        return sorted({path[len(prefix) :].partition("/")[0] for path in self._platter.names if path.startswith(prefix)})

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        inode = self._platter.names.get(checked(path))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return bytes(inode.cache)

    async def replace(self, path: str, data: bytes) -> None:
        """Write a temporary file, flush it, rename it, flush the directory: a crash may come between any two of these."""
        kind = file_class(checked(path))
        temporary = path + TEMPORARY_SUFFIX
        inode = self._platter.names[temporary] = Inode()
        self.write(inode, kind, [data])
        await self.sync(inode, kind)
        self._watched("rename", kind, "before")
        names = self._platter.names
        if names.get(temporary) is inode:
            del names[temporary]
        names[path] = inode
        self._watched("rename", kind, "after")
        await self.flush_directory(directory_of(path))

    def remove(self, path: str) -> None:
        """Delete a file."""
        if self._platter.names.pop(checked(path), None) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    async def rename(self, path: str, new_path: str) -> None:
        """Give a file another name in its directory, and flush the directory."""
        assert directory_of(checked(path)) == directory_of(checked(new_path)), "a file stays in its directory"
        kind, names = file_class(new_path), self._platter.names
        self._watched("rename", kind, "before")
        inode = names.pop(path, None)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        names[new_path] = inode
        self._watched("rename", kind, "after")
        await self.flush_directory(directory_of(path))

    async def flush_directory(self, directory: str) -> None:
        """Make creations, renames and removals in a directory durable, and the directory's own creation with them."""
        platter = self._platter
        entries = {path: inode for path, inode in platter.names.items() if directory_of(path) == directory}

        def end() -> None:
            others = {path: inode for path, inode in platter.durable_names.items() if directory_of(path) != directory}
            platter.durable_names = others | entries

        await self._after(platter.flush_ns[0], end)

    def write(self, inode: Inode, kind: FileClass, chunks: Sequence[Chunk]) -> int:
        """Append to a file; a full disk takes a part and refuses the rest."""
        self._watched("write", kind, "before")
        position = len(inode.cache)
        full = self._platter.faults.full
        if full is not None:
            data = b"".join(chunks)
            inode.cache += data[: int(self._process.random("full disk").random() * len(data))]
            full(f"a write of {len(data)} bytes was refused")
            raise OSError(errno.ENOSPC, "No space left on device")
        for chunk in chunks:
            inode.cache += chunk
        self._watched("write", kind, "after")
        return position

    async def sync(self, inode: Inode, kind: FileClass) -> None:
        """Flush a file."""
        self._watched("flush", kind, "before")
        shortest, longest = self._platter.flush_ns
        sync = inode.begin_sync()
        slow = self._platter.faults.slow
        if slow is not None:
            slow(f"a flush takes {self._platter.faults.slowness:g} times as long")
        await self._after(shortest + int(self._process.random("disk").random() * (longest - shortest)), self._end_sync, inode, sync, kind)

    def _end_sync(self, inode: Inode, sync: Sync, kind: FileClass) -> None:
        faults = self._platter.faults
        if faults.flush_errors and faults.flush_error_class in (None, kind):
            faults.flush_errors -= 1
            doomed = inode.fail_sync(sync)
            if faults.flush_error is not None:
                faults.flush_error(f"a flush was refused; {doomed} bytes will never be written")
            raise OSError(errno.EIO, "Input/output error")
        inode.end_sync(sync)
        self._watched("flush", kind, "after")

    def _inode(self, path: str) -> Inode:
        inode = self._platter.names.get(path)
        if inode is None:
            inode = self._platter.names[path] = Inode()
        return inode

    def _watched(self, operation: str, kind: FileClass, moment: str) -> None:
        watch = self._platter.watch
        if watch is not None and self._process.is_alive:
            watch(operation, kind, moment)

    async def _after(self, duration_ns: int, end: Callable[[Unpack[Ts]], None], *args: *Ts) -> None:
        """Let the disk work for a while, then end the work: it ends even if its caller is cancelled meanwhile. Raises what the end raises."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._loop.schedule(self._process, self._loop.now_ns + int(duration_ns * self._platter.faults.slowness), _finish, done, end, args)
        await done


class SimulatedFile:
    """An open file; implements `kraftsim.world.interface.File`."""

    __slots__ = ("_disk", "_inode", "_is_closed", "_kind", "path")

    def __init__(self, path: str, inode: Inode, disk: SimulatedDisk) -> None:
        self.path = path
        self._inode = inode
        self._disk = disk
        self._kind = file_class(path)
        self._is_closed = False

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return len(self._inode.cache)

    def append(self, chunks: Sequence[Chunk]) -> int:
        """Write the chunks at the end and return the position of the first byte."""
        assert not self._is_closed, f"{self.path} is closed"
        return self._disk.write(self._inode, self._kind, chunks)

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return up to size_bytes from position."""
        return bytes(memoryview(self._inode.cache)[position : position + size_bytes])

    def slice(self, position: int, size_bytes: int) -> bytes:
        """Return bytes to be sent; there is no kernel here that could send them without us."""
        return self.read(position, size_bytes)

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to size_bytes."""
        self._inode.truncate(size_bytes)

    async def flush(self) -> None:
        """Make everything appended before this call durable."""
        await self._disk.sync(self._inode, self._kind)

    def close(self) -> None:
        """Give the file back."""
        self._is_closed = True


def _finish(done: "asyncio.Future[None]", end: Callable[[Unpack[Ts]], None], args: tuple[*Ts]) -> None:
    try:
        end(*args)
    except OSError as trouble:
        if not done.done():
            done.set_exception(trouble)
    else:
        if not done.done():
            done.set_result(None)
