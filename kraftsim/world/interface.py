"""The interface of the world for node code: four small protocols, implemented once for real
machines and once for virtual time.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import Protocol, TypeVar

from kraftsim.events.event import Event

T = TypeVar("T")
Chunk = bytes | bytearray | memoryview


class Clock(Protocol):
    """Time of this node.

    The wall clock may be wrong and may jump; the monotonic clock never goes back.
    """

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
    """A slice of a file that has not been read.

    Its content does not change, whatever happens to the file meanwhile.
    """

    def __len__(self) -> int:
        """Return the number of bytes."""
        ...

    def read(self) -> bytes:
        """Return the bytes. Raises OSError."""
        ...

    def send(self, socket_descriptor: int, first: int) -> int:
        """Send as many of them as a socket accepts, from byte `first` on, and return the number: at
        least one. Raises OSError: the socket is full, or closed, or the file cannot be read.
        """
        ...


class File(Protocol):
    """An open file that grows at its end.

    Writes are visible at once and durable only after `flush`.
    """

    path: str

    @property
    def size_bytes(self) -> int:
        """Length of the file as this process sees it."""
        ...

    def append(self, chunks: Sequence[Chunk]) -> int:
        """Append the chunks, in order, and return the position of the first byte.

        Raises OSError; then a part may be written.
        """
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return up to size_bytes from position; fewer only at the end of the file."""
        ...

    def slice(self, position: int, size_bytes: int) -> Chunk | FileSlice:
        """Return so many bytes from position, which must exist, in a form that is efficient to
        send.
        """
        ...

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file to size_bytes."""
        ...

    async def flush(self) -> None:
        """Make everything appended before this call durable.

        Raises OSError: then the unflushed bytes may be lost for good (fsyncgate).
        """
        ...

    def close(self) -> None:
        """Close the file; does not flush."""
        ...


class Disk(Protocol):
    """The data directory of one node.

    Paths are relative, with '/' between parts; parents are created on demand.
    """

    def open(self, path: str) -> File:
        """Open a file for appending and reading, creating it if it is absent."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is a file at path."""
        ...

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted; an absent directory is empty. '' is the root."""
        ...

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError."""
        ...

    async def replace(self, path: str, data: bytes) -> None:
        """Replace a file atomically: after any crash either the old or the new content is there.

        Temporary file, flush, rename, flush of the directory; replacements of one path happen in
        the order of the calls.
        """
        ...

    def remove(self, path: str) -> None:
        """Delete a file; it may come back after a power loss until the directory is flushed.

        Raises FileNotFoundError.
        """
        ...

    async def rename(self, path: str, new_path: str) -> None:
        """Rename a file in its directory, durably; an existing file of the new name is replaced.

        Flush the file before. Raises FileNotFoundError.
        """
        ...

    def move_directory(self, directory: str, new_directory: str) -> None:
        """Rename a directory of the root; the new one must have no files.

        Durable once the root is flushed. Close its files before.
        """
        ...

    async def flush_directory(self, directory: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        ...

    def space(self) -> tuple[int, int]:
        """Return the total and the free number of bytes. Raises OSError."""
        ...


class ObjectStore(Protocol):
    """An object store that all nodes share: whole objects are written, any part of one is read.

    Keys are paths with '/' between their parts.

    Every call is a remote request: it takes time, and may fail with an OSError whether or not it
    took effect.
    """

    async def put(self, key: str, pieces: Sequence[Chunk | FileSlice]) -> None:
        """Write an object, replacing an existing one of that key. Raises OSError."""
        ...

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        """Return so many bytes from `first` on, fewer only at the end; None: to the end.

        Raises FileNotFoundError, OSError.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete an object; succeeds if there is none. Raises OSError."""
        ...

    async def list(self, prefix: str) -> list[str]:
        """Return the keys with a prefix, sorted.

        Recently written objects may be missing, recently deleted ones still listed. Raises OSError.
        """
        ...


# --------------------------------------------------------------------------------------------------
# The places where another thread of Apache Kafka may run before the present one goes on.
#
# A node of kraftsim is one thread, so that nothing runs in between unless the code says so. Kafka's
# brokers and controllers release a lock, hand work to another thread, or wait in a queue at these
# places, and their bugs live in what happens meanwhile. In simulation a thread may be preempted
# there (`World.yield_point`, `World.hand_over`): for a few turns in about half of the runs, and for
# as long as a round trip or a session by the fault `preempted-thread`.


class YieldPoint(StrEnum):
    """A place where a thread may be preempted, named by what it did last."""

    # Raft: the raft I/O thread, and the threads that replay committed records
    METADATA_WRITTEN = "metadata-written"
    METADATA_FLUSHED = "metadata-flushed"
    COMMITTED_BATCH_APPLIED = "committed-batch-applied"
    BATCH_PASSED_TO_BROKER = "batch-passed-to-broker"
    SNAPSHOT_BUILT = "snapshot-built"
    # controllers: QuorumController's event queue, and KafkaController's in ZooKeeper mode
    RECORDS_COMMITTED = "records-committed"
    ZOOKEEPER_WRITE_ACKNOWLEDGED = "zookeeper-write-acknowledged"
    ZOOKEEPER_CHANGE_READ = "zookeeper-change-read"
    BROKER_ANSWERED = "broker-answered"
    MIGRATION_BATCH_COMMITTED = "migration-batch-committed"
    DUAL_WRITE_DONE = "dual-write-done"
    # brokers: MetadataLoader, NodeToControllerRequestThread, request handlers, fetchers
    METADATA_IMAGE_UPDATED = "metadata-image-updated"
    CONTROLLER_ANSWERED = "controller-answered"
    DELAYED_OPERATION_TRIGGERED = "delayed-operation-triggered"
    PARTITION_FETCHED = "partition-fetched"
    LOG_CLEANED = "log-cleaned"
    SEGMENT_UPLOADED = "segment-uploaded"
    # coordinators: their loads, the transaction coordinator's markers and time-outs
    GROUP_COORDINATOR_ELECTED = "group-coordinator-elected"
    TRANSACTION_COORDINATOR_ELECTED = "transaction-coordinator-elected"
    SHARE_COORDINATOR_ELECTED = "share-coordinator-elected"
    SHARE_STATE_ANSWERED = "share-state-answered"
    TRANSACTIONS_READ_BACK = "transactions-read-back"
    TRANSACTION_TIMED_OUT = "transaction-timed-out"
    TRANSACTION_VERIFIED = "transaction-verified"
    MARKERS_ANSWERED = "markers-answered"
    MARKERS_COUNTED = "markers-counted"


class World(Protocol):
    """Everything that a node may use besides the network."""

    run: str
    node: str
    incarnation: int
    clock: Clock
    disk: Disk

    def random(self, purpose: str) -> Random:
        """Return the stream of random numbers for a purpose; streams are keyed by (seed, node,
        incarnation, purpose) and independent.
        """
        ...

    def emit(self, event: Event) -> None:
        """Emit an event to the event log. Buffered; see `flush_events`."""
        ...

    def flush_events(self) -> None:
        """Write the buffered events to the operating system.

        Called before answers are sent, so that an acknowledged event is never missing from the log
        after kill -9.
        """
        ...

    def elsewhere(self, directory: str) -> "World":
        """Return this world with another directory of the node as its disk, by its path on the
        machine.

        Raises OSError.
        """
        ...

    def objects(self, location: str, settings: Mapping[str, str]) -> ObjectStore:
        """Return an object store: `file:DIRECTORY`, or `s3:BUCKET` with the settings of its client.

        Raises OSError, ImportError.
        """
        ...

    async def aside(self, work: Callable[[], T]) -> T:
        """Return the result of a function, without blocking the loop: for long work without shared
        state or ordering.
        """
        ...

    async def yield_point(self, place: YieldPoint) -> None:
        """A place where another thread of Kafka may run before this one goes on: nothing in a real
        world, a scheduling choice in simulation.
        """
        ...

    def hand_over(self, place: YieldPoint, work: Callable[[], object]) -> None:
        """Do work that another thread of Kafka may do later: at once in a real world; in simulation
        later, if that thread is preempted.
        """
        ...


# --------------------------------------------------------------------------------------------------
# The content of objects to write: pieces, some of which have not been read yet


def bytes_of(piece: Chunk | FileSlice) -> Chunk:
    """Return the bytes of a piece, reading them if necessary. Raises OSError."""
    return piece if isinstance(piece, bytes | bytearray | memoryview) else piece.read()


# --------------------------------------------------------------------------------------------------
# Streams of random numbers, one per purpose: draws in one part of a node never affect those in
# another part
#
# With one shared generator a run could not be shrunk: removing a single fault would change every
# later draw.


def stream(seed: int, node: str, incarnation: int, purpose: str) -> Random:
    """Return the stream of a purpose, at its start; equal keys give equal streams in every process
    and under every hash seed.
    """
    return Random(f"{seed}/{node}/{incarnation}/{purpose}")
