"""The directory layout of a run, the lock of a data directory, and `cluster.json`.

The layout is the same in all modes, so that ingest, analysis and report need not know the mode.

OUT/run.json                what ran
OUT/replay.json             all inputs of the run, for `kraftsim replay`
OUT/events/NODE.N.jsonl     the event log of a node's N-th incarnation
OUT/data/NODE/...           the node's disk: partition directories as Kafka lays them out
OUT/logs/NODE.log           the log of the process for humans
OUT/config/NODE.properties  what the process was started with
"""

import hmac
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from kraftsim.server.config_keys import ConfigError

# --------------------------------------------------------------------------------------------------
# What only the user who started a cluster may read or do: files that may hold passwords, and the
# sockets that control faults
#
# A socket on loopback can be reached by every user of the machine. The two sockets that control
# faults therefore serve only a client that knows a secret, which is in a file that only that user
# can read.


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read, replacing an existing one."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def new_secret() -> str:
    """Return 32 hexadecimal digits from the operating system's entropy."""
    return os.urandom(16).hex()


def is_same_secret(given: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory of one run."""

    root: Path

    @property
    def events(self) -> Path:
        """Event logs of all nodes, clients and the harness."""
        return self.root / "events"

    @property
    def run_file(self) -> Path:
        """The description of the run."""
        return self.root / "run.json"

    @property
    def state_file(self) -> Path:
        """Process ids of a cluster that was started with --detach."""
        return self.root / "cluster.json"

    def data(self, node: str) -> Path:
        """The disk of a node."""
        return self.root / "data" / node

    def human_log(self, node: str) -> Path:
        """The free-text log of a node's process."""
        return self.root / "logs" / f"{node}.log"

    def properties(self, node: str) -> Path:
        """The property file of a node's process."""
        return self.root / "config" / f"{node}.properties"

    def create(self) -> None:
        """Make the directories that do not depend on a node."""
        for directory in (
            self.events,
            self.root / "data",
            self.root / "logs",
            self.root / "config",
        ):
            directory.mkdir(parents=True, exist_ok=True)


# --------------------------------------------------------------------------------------------------
# A lock that allows one process per data directory: two processes that append to the same log
# would corrupt it unnoticed
#
# The operating system releases the lock when the process ends, so that a kill -9 leaves nothing
# to clean up, and a locked directory has a running process.
# Source: org.apache.kafka.server.util.FileLock, LogManager.lockLogDirs.

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
            _lock(file.fileno())
        except (BlockingIOError, PermissionError) as taken:
            raise DirectoryInUse(f"{directory} is in use by another process") from taken
        yield


def _lock(descriptor: int) -> None:
    """Lock an open file until it is closed.

    Raises BlockingIOError if another process has it, on Windows PermissionError.
    """
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(directory: Path) -> bool:
    """Return whether a process holds the lock of a data directory."""
    if not (directory / LOCK_FILE).exists():
        return False
    try:
        with locked(directory):
            return False
    except DirectoryInUse:
        return True


# --------------------------------------------------------------------------------------------------
# `cluster.json`: `kraftsim up` writes it for as long as the cluster runs, so that other commands
# find the cluster by its data directory


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """What `up` writes for other commands and for people: the supervisor, the process id of each
    running node, and the fault-control port.
    """

    supervisor: int
    bootstrap: str
    nodes: dict[str, int]
    door: int = 0
    """Port of the fault-control socket; 0 until the cluster is ready."""
    secret: str = ""
    """The secret that a client of that socket must send; only the owner can read this file."""
    http: str = ""
    """Where HTTP is served: `http://127.0.0.1:8080`; empty if it is not."""
    http_token: str = ""
    """The token that a client of it must send."""


def read_state(directory: RunDirectory) -> ClusterState | None:
    """Return what a running `up` wrote, or None."""
    try:
        return msgspec.json.decode(directory.state_file.read_bytes(), type=ClusterState)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def write_state(directory: RunDirectory, state: ClusterState) -> None:
    """Replace the file atomically; readers never see half of one."""
    fresh = directory.state_file.with_suffix(".new")
    write_private(fresh, msgspec.json.encode(state))
    fresh.rename(directory.state_file)
