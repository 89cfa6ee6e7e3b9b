"""A lock that allows one process per data directory: two processes that append to the same log
would corrupt it unnoticed.

The operating system releases the lock when the process ends, so that a kill -9 leaves nothing to
clean up, and a locked directory has a running process.
Source: org.apache.kafka.server.util.FileLock, LogManager.lockLogDirs.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kraftsim.server.config_keys import ConfigError

LOCK_FILE: Final = ".lock"


class DirectoryInUse(ConfigError):
    """Another process has the data directory."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a data directory for as long as the block runs.

    Raises DirectoryInUse, or OSError for a directory that cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK_FILE).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            raise DirectoryInUse(f"{directory} is in use by another process") from taken
        yield


def is_locked(directory: Path) -> bool:
    """Return whether a process holds the lock of a data directory."""
    if not (directory / LOCK_FILE).exists():
        return False
    try:
        with locked(directory):
            return False
    except DirectoryInUse:
        return True
