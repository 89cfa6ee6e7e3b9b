"""The disk of a simulated host as a process sees it, with a page cache, latencies and disk faults.

A process uses the files of its own incarnation: when it dies, the next one gets a copy of the
remaining data, so that code of a dead process that still runs cannot change anything.
"""

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVarTuple, Unpack

from kraftsim.world.interface import Chunk, File
from kraftsim.world.simulated.disk_faults import FileClass, StuckFlush, file_class
from kraftsim.world.simulated.durable_disk import NameChange, moved
from kraftsim.world.simulated.inode import Inode, InodeSync
from kraftsim.world.subdirectory import checked, directory_of

if TYPE_CHECKING:
    from kraftsim.world.simulated.host import Process
    from kraftsim.world.simulated.loop import VirtualLoop

Ts = TypeVarTuple("Ts")

TEMPORARY_SUFFIX = ".tmp"
CAPACITY_BYTES = 1 << 40


class SimulatedDisk:
    """The disk as one process sees it; implements `kraftsim.world.interface.Disk`."""

    def __init__(self, loop: "VirtualLoop", process: "Process") -> None:
        self._loop = loop
        self._process = process
        self._durable = process.host.durable

    def open(self, path: str) -> File:
        """Open a file, creating it if it is absent."""
        return SimulatedFile(path, self._inode(checked(path)), self)

    def exists(self, path: str) -> bool:
        """Return whether there is a file at path."""
        return checked(path) in self._durable.names

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        prefix = checked(directory) + "/" if directory else ""
        return sorted(
            {
                path[len(prefix) :].partition("/")[0]
                for path in self._durable.names
                if path.startswith(prefix)
            }
        )

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        inode = self._durable.names.get(checked(path))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if self.is_flawed(inode):
            self.look(inode, file_class(path), 0, len(inode.cache) + 1)
        return bytes(inode.cache)

    async def replace(self, path: str, data: bytes) -> None:
        """Write a temporary file, flush it, rename it, flush the directory: a crash may occur
        between any two of these.
        """
        kind = file_class(checked(path))
        temporary = path + TEMPORARY_SUFFIX
        inode = self._create(temporary)
        self.write(inode, kind, [data])
        await self.sync(inode, kind)
        self._watched("rename", kind, "before")
        names = self._durable.names
        if names.get(temporary) is inode:
            del names[temporary]
        names[path] = inode
        self._durable.journal.append(NameChange(gone=temporary, given=path, inode=inode))
        self._watched("rename", kind, "after")
        await self.flush_directory(directory_of(path))

    def remove(self, path: str) -> None:
        """Delete a file."""
        if self._durable.names.pop(checked(path), None) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self._durable.journal.append(NameChange(gone=path))
        self._watched("remove", file_class(path), "after")

    async def rename(self, path: str, new_path: str) -> None:
        """Rename a file in its directory, and flush the directory."""
        assert directory_of(checked(path)) == directory_of(checked(new_path)), (
            "a file stays in its directory"
        )
        kind, names = file_class(new_path), self._durable.names
        self._watched("rename", kind, "before")
        inode = names.pop(path, None)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        names[new_path] = inode
        self._durable.journal.append(NameChange(gone=path, given=new_path, inode=inode))
        self._watched("rename", kind, "after")
        await self.flush_directory(directory_of(path))

    def move_directory(self, directory: str, new_directory: str) -> None:
        """Rename a directory."""
        change = NameChange(
            gone=checked(directory), given=checked(new_directory), is_directory=True
        )
        self._durable.names = moved(self._durable.names, change)
        self._durable.journal.append(change)

    async def flush_directory(self, directory: str) -> None:
        """Make creations, renames and removals in a directory durable, and the creation of the
        directory itself.
        """
        durable = self._durable
        entries = _entries(durable.names, directory)
        covered = {
            id(change): change
            for change in durable.journal
            if directory_of(change.given or change.gone or "") == directory
        }

        def end() -> None:
            durable.journal = [change for change in durable.journal if id(change) not in covered]
            for change in covered.values():
                if change.is_directory:
                    durable.durable_names = moved(durable.durable_names, change)
            former = _entries(durable.durable_names, directory)
            durable.durable_names = {
                path: inode for path, inode in durable.durable_names.items() if path not in former
            } | entries

        await self._after(durable.flush_ns[0], end)

    def space(self) -> tuple[int, int]:
        """Return the size of the disk, and its free space.

        A full disk is a fault, which these numbers do not show.
        """
        return CAPACITY_BYTES, max(
            CAPACITY_BYTES - sum(len(inode.cache) for inode in self._durable.names.values()), 0
        )

    def write(self, inode: Inode, kind: FileClass, chunks: Sequence[Chunk]) -> int:
        """Append to a file; a full disk accepts a part and fails."""
        is_watched = self._durable.watch is not None
        if is_watched:
            self._watched("write", kind, "before")
        position = len(inode.cache)
        faults = self._durable.faults
        if faults.full:
            data = b"".join(chunks)
            taken = faults.room_for(kind, len(data), self._process.random("full disk"))
            if taken < len(data):
                inode.cache += data[:taken]
                raise OSError(errno.ENOSPC, "No space left on device")
        for chunk in chunks:
            inode.cache += chunk
        if is_watched:
            self._watched("write", kind, "after")
        return position

    async def sync(self, inode: Inode, kind: FileClass) -> None:
        """Flush a file."""
        self._watched("flush", kind, "before")
        shortest, longest = self._durable.flush_ns
        sync = inode.begin_sync()
        faults = self._durable.faults
        for slow in faults.slow:
            slow.record_effect(f"a flush takes {slow.factor:g} times as long")
        duration_ns = shortest + int(self._process.random("disk").random() * (longest - shortest))
        longer_ns = (
            faults.stretched_ns(duration_ns, self._process.random("slow tail"))
            if faults.tails
            else duration_ns
        )
        await self._after(
            duration_ns,
            self._end_sync,
            inode,
            sync,
            kind,
            longer_ns=longer_ns,
            stuck=faults.stuck_for(kind),
        )

    def _end_sync(self, inode: Inode, sync: InodeSync, kind: FileClass) -> None:
        faults = self._durable.faults
        refusal = faults.refusal_for(kind) if faults.refusals else None
        if refusal is not None:
            doomed = inode.fail_sync(sync)
            refusal.record_effect(f"a flush was refused; {doomed} bytes will never be written")
            raise OSError(errno.EIO, "Input/output error")
        if faults.lies and faults.lie_for(kind) is not None:
            inode.pretend_sync(sync)
        else:
            inode.end_sync(sync)
        self._watched("flush", kind, "after")

    def look(self, inode: Inode, kind: FileClass, first: int, end: int) -> None:
        """Called before bytes of a file are read. Raises OSError if the disk cannot read them."""
        bad = self._durable.faults.bad_range_in(kind, first, min(end, len(inode.cache)))
        if bad is not None:
            bad.record_effect(f"a read of {kind.value} from position {first} was refused")
            raise OSError(errno.EIO, "Input/output error")
        inode.touches(first, end)

    def is_flawed(self, inode: Inode) -> bool:
        """Return whether reads of a file may return anything else than what was written."""
        return bool(inode.damages or self._durable.faults.bad_ranges)

    def _inode(self, path: str) -> Inode:
        inode = self._durable.names.get(path)
        if inode is None:
            inode = self._create(path)
        return inode

    def _create(self, path: str) -> Inode:
        inode = self._durable.names[path] = Inode()
        self._durable.journal.append(NameChange(given=path, inode=inode))
        return inode

    def _watched(self, operation: str, kind: FileClass, moment: str) -> None:
        watch = self._durable.watch
        if watch is not None and self._process.is_alive:
            watch(operation, kind, moment)

    async def _after(
        self,
        duration_ns: int,
        end: Callable[[Unpack[Ts]], None],
        *args: *Ts,
        longer_ns: int = 0,
        stuck: StuckFlush | None = None,
    ) -> None:
        """Occupy the disk for a while, then complete the operation, even if its caller is cancelled
        meanwhile. Raises what the completion raises.

        `longer_ns` is a minimum duration.
        """
        done: asyncio.Future[None] = self._loop.create_future()

        def begin() -> None:
            loop, faults = self._loop, self._durable.faults
            usual_ns = loop.now_ns + duration_ns
            if not faults.slow and longer_ns <= duration_ns:
                loop.schedule(self._process, usual_ns, _finish, done, end, args)
                return

            def finish() -> None:
                if hasten in faults.late:
                    faults.late.remove(hasten)
                _finish(done, end, args)

            def hasten() -> None:
                call.cancel()
                loop.schedule(self._process, max(usual_ns, loop.now_ns), _finish, done, end, args)

            late_ns = loop.now_ns + int(max(duration_ns, longer_ns) * faults.slowness)
            call = loop.schedule(self._process, late_ns, finish)
            faults.late.append(hasten)

        if stuck is None:
            begin()
        else:
            stuck.hold(begin)
        await done


class SimulatedFile:
    """An open file; implements `kraftsim.world.interface.File`.

    It must not be used after it is closed: on a real disk that is an error.
    """

    __slots__ = ("_disk", "_kind", "_opened", "path")

    def __init__(self, path: str, inode: Inode, disk: SimulatedDisk) -> None:
        self.path = path
        self._opened: Inode | None = inode
        self._disk = disk
        self._kind = file_class(path)

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return len(self._inode.cache)

    def append(self, chunks: Sequence[Chunk]) -> int:
        """Append the chunks and return the position of the first byte."""
        return self._disk.write(self._inode, self._kind, chunks)

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return up to size_bytes from position."""
        inode = self._inode
        if self._disk.is_flawed(inode):
            self._disk.look(inode, self._kind, position, position + size_bytes)
        return bytes(memoryview(inode.cache)[position : position + size_bytes])

    def slice(self, position: int, size_bytes: int) -> bytes:
        """Return the bytes themselves; there is no kernel here that could send a slice."""
        return self.read(position, size_bytes)

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file to size_bytes."""
        self._inode.truncate(size_bytes)

    async def flush(self) -> None:
        """Make everything appended before this call durable."""
        await self._disk.sync(self._inode, self._kind)

    def close(self) -> None:
        """Close the file; a running flush continues."""
        self._opened = None

    @property
    def _inode(self) -> Inode:
        assert self._opened is not None, f"{self.path} is closed"
        return self._opened


def _finish(
    done: "asyncio.Future[None]", end: Callable[[Unpack[Ts]], None], args: tuple[*Ts]
) -> None:
    try:
        end(*args)
    except OSError as error:
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(None)


def _entries(names: Mapping[str, Inode], directory: str) -> dict[str, Inode]:
    """Return the files directly in a directory; '' is the root.

    A directory may have many, and a flush checks all of them.
    """
    if not directory:
        return {path: inode for path, inode in names.items() if "/" not in path}
    prefix, first = f"{directory}/", len(directory) + 1
    return {
        path: inode
        for path, inode in names.items()
        if path.startswith(prefix) and path.find("/", first) < 0
    }
