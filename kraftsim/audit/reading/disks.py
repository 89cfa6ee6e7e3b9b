"""Lists the files of a directory, and reads pieces of them: on this machine, and in the file
systems that pyarrow reaches (S3, HDFS, ...).

Files are read in pieces, not mapped: the log of a running broker may be truncated while it is read,
and a mapped file then ends the process. Only regular files are opened, because a pipe would wait
for ever.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from kraftsim.analysis.places import MissingFile, Where, place_of

DEPTH_MAX: Final = 8
"""Directories below a log directory that are looked into."""


class DiskFile(NamedTuple):
    """A file below a directory: its path from there, its size, when it was changed; or why it
    cannot be read.
    """

    path: str
    size: int
    modified_ms: int | None
    trouble: str = ""


class FileSource(Protocol):
    """A file system. Both methods raise OSError."""

    def walk(self, root: str) -> Iterator[DiskFile]:
        """Yield all files below a directory; a directory that cannot be listed, as a file with
        trouble.
        """
        ...

    def read(self, path: str, position: int, size: int) -> bytes:
        """Return up to this many bytes of a file; fewer only at its end."""
        ...


class LocalDisk:
    """The directories of this machine."""

    def walk(self, root: str) -> Iterator[DiskFile]:
        """Yield all files below a directory; a link back is followed once."""
        listed = os.scandir(root)
        seen = {_identity(os.stat(root))}
        with listed:
            yield from self._below("", sorted(listed, key=lambda each: each.name), seen, 0)

    def _below(
        self, prefix: str, entries: list[os.DirEntry[str]], seen: set[tuple[int, int]], depth: int
    ) -> Iterator[DiskFile]:
        for entry in entries:
            path = f"{prefix}{entry.name}"
            try:
                status = entry.stat()
            except OSError as failure:
                yield DiskFile(path, 0, None, _reason(failure))
                continue
            modified_ms = status.st_mtime_ns // 1_000_000
            if stat.S_ISREG(status.st_mode):
                yield DiskFile(path, status.st_size, modified_ms)
            elif not stat.S_ISDIR(status.st_mode):
                yield DiskFile(path, 0, modified_ms, "it is no regular file")
            elif _identity(status) not in seen:
                seen.add(_identity(status))
                if depth == DEPTH_MAX:
                    yield DiskFile(f"{path}/", 0, modified_ms, "too many directories in each other")
                    continue
                try:
                    with os.scandir(entry.path) as listed:
                        inner = sorted(listed, key=lambda each: each.name)
                except OSError as failure:
                    yield DiskFile(f"{path}/", 0, modified_ms, _reason(failure))
                    continue
                yield from self._below(f"{path}/", inner, seen, depth + 1)
                if not inner:
                    yield DiskFile(f"{path}/", 0, modified_ms)

    def read(self, path: str, position: int, size: int) -> bytes:
        """Return a piece of a file."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            pieces = []
            while size > 0 and (piece := os.pread(descriptor, size, position)):
                pieces.append(piece)
                position += len(piece)
                size -= len(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        finally:
            os.close(descriptor)


class RemoteDisk:
    """The file systems that pyarrow reaches; endpoint and credentials come from the environment."""

    def walk(self, root: str) -> Iterator[DiskFile]:
        """Yield all files below a directory, or below a prefix."""
        place = place_of(root)
        found = place.files()
        if not found and not place.is_directory():
            raise MissingFile(f"{place}: there is no such directory")
        for file in found:
            yield DiskFile(file.path, file.size_bytes, file.modified_ns // 1_000_000)

    def read(self, path: str, position: int, size: int) -> bytes:
        """Return a piece of a file."""
        place, filesystem = place_of(path).arrow()
        assert filesystem is not None, "only local places have none"
        with filesystem.open_input_file(place) as file:
            return bytes(file.read_at(size, position))


def disk_of(place: str) -> FileSource:
    """Return the file system of a path or an address."""
    return RemoteDisk() if "://" in place else LocalDisk()


def named(place: Where) -> str:
    """Return a directory as the tables name it: its path or address, without a slash at the end.

    Raises PlaceError.
    """
    return str(place_of(place)).rstrip("/") or "/"


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _reason(failure: OSError) -> str:
    return failure.strerror or str(failure)


def readable(disk: FileSource, path: str, size: int) -> bytes | None:
    """Return a small file, None if it is not there or cannot be read."""
    with suppress(OSError):
        return disk.read(path, 0, size)
    return None
