"""Faults of a simulated disk: every condition is an object of its own, which a fault adds to the
disk and removes again.

Two faults of one kind may affect the same disk, so each ends only its own condition, and of two
slowdowns the worse one counts. Running operations complete as if without slowdown when the last of
them ends. A condition's `record_effect` is called whenever it changes an outcome.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final

# --------------------------------------------------------------------------------------------------
# Classifies files by path, so that a fault can target 'the third write to a metadata log' without
# names of topics
#
# Source: the layout of Kafka's log directories, and of ZooKeeper's dataDir.

CLEANED, SWAP = ".cleaned", ".swap"
"""Suffixes of replacement files before their rename."""
METADATA_TOPIC_PREFIX = "__cluster_metadata-"
ZOOKEEPER_DIRECTORY = "version-2"


class FileClass(StrEnum):
    """Kinds of files under a data directory."""

    METADATA_LOG = "metadata-log"
    PARTITION_LOG = "partition-log"
    QUORUM_STATE = "quorum-state"
    CHECKPOINT = "checkpoint"
    """A snapshot of the metadata, or meta.properties."""
    OFFSET_INDEX = "offset-index"
    TIME_INDEX = "time-index"
    TRANSACTION_INDEX = "transaction-index"
    PRODUCER_SNAPSHOT = "producer-snapshot"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    RECOVERY_POINTS = "recovery-point-offset-checkpoint"
    HIGH_WATERMARKS = "replication-offset-checkpoint"
    LOG_STARTS = "log-start-offset-checkpoint"
    CLEANER_OFFSETS = "cleaner-offset-checkpoint"
    ZOOKEEPER_LOG = "zookeeper-log"
    OTHER = "other"


OF_PARTITIONS: Final = {
    ".index": FileClass.OFFSET_INDEX,
    ".timeindex": FileClass.TIME_INDEX,
    ".txnindex": FileClass.TRANSACTION_INDEX,
    ".snapshot": FileClass.PRODUCER_SNAPSHOT,
    **{
        name.value: name
        for name in (
            FileClass.LEADER_EPOCHS,
            FileClass.RECOVERY_POINTS,
            FileClass.HIGH_WATERMARKS,
            FileClass.LOG_STARTS,
            FileClass.CLEANER_OFFSETS,
        )
    },
}
"""The files of partitions and of log directories, by suffix or name; those of the metadata log are
of other classes.
"""


def file_class(path: str) -> FileClass:
    """Return the class of a file by its path."""
    directory, _, name = path.removesuffix(CLEANED).removesuffix(SWAP).rpartition("/")
    if name == "quorum-state":
        return FileClass.QUORUM_STATE
    is_metadata = directory.rpartition("/")[2].startswith(METADATA_TOPIC_PREFIX)
    if not is_metadata:
        found = OF_PARTITIONS.get(name) or OF_PARTITIONS.get(f".{name.rpartition('.')[2]}")
        if found is not None:
            return found
    if name.endswith(("checkpoint", ".snapshot")) or name == "meta.properties":
        return FileClass.CHECKPOINT
    if name.endswith(".log"):
        return FileClass.METADATA_LOG if is_metadata else FileClass.PARTITION_LOG
    if directory.endswith(ZOOKEEPER_DIRECTORY) and name.startswith("log."):
        return FileClass.ZOOKEEPER_LOG
    return FileClass.OTHER


# --------------------------------------------------------------------------------------------------
# The conditions of a disk

EffectRecorder = Callable[[str], None]
TAIL_SHAPE = 1.1
"""A Pareto distribution of this shape has a mean of eleven times its minimum: most slow flushes are
a little slow, a few are very slow.
"""
PERMILLE = 1000


@dataclass(kw_only=True, slots=True, eq=False)
class Slowness:
    """All flushes take `factor` times as long."""

    factor: float
    record_effect: EffectRecorder


@dataclass(kw_only=True, slots=True, eq=False)
class SlowTail:
    """Of a thousand flushes `permille` take much longer, up to `limit_ns`."""

    permille: int
    limit_ns: int
    record_effect: EffectRecorder


@dataclass(kw_only=True, slots=True, eq=False)
class Full:
    """Writes to files of a kind (None: to all) fail once `room_bytes` were written; None: from the
    next write on, of which a part is written.
    """

    kind: FileClass | None = None
    room_bytes: int | None = None
    record_effect: EffectRecorder


@dataclass(kw_only=True, slots=True, eq=False)
class FlushRefusal:
    """The next `times` flushes of files of a kind fail, and the pages count as clean."""

    kind: FileClass | None = None
    times: int = 1
    record_effect: EffectRecorder


@dataclass(kw_only=True, slots=True, eq=False)
class StuckFlush:
    """Flushes of files of a kind do not complete until `release`."""

    kind: FileClass | None = None
    record_effect: EffectRecorder
    _held: list[Callable[[], None]] = field(default_factory=list)

    def hold(self, go_on: Callable[[], None]) -> None:
        """Make a flush wait."""
        self._held.append(go_on)
        self.record_effect("a flush does not return")

    def release(self) -> None:
        """Complete every waiting flush."""
        held, self._held = self._held, []
        for go_on in held:
            go_on()


@dataclass(kw_only=True, slots=True, eq=False)
class LyingFlush:
    """Flushes of files of a kind return and make nothing durable: a drive with a volatile write
    cache.
    """

    kind: FileClass | None = None
    record_effect: EffectRecorder


@dataclass(kw_only=True, slots=True, eq=False)
class BadRange:
    """Bytes of files of a kind that cannot be read, from `first` to before `end`."""

    kind: FileClass | None = None
    first: int
    end: int
    record_effect: EffectRecorder


@dataclass(kw_only=True, slots=True)
class DiskFaults:
    """The present faults of a disk."""

    slow: list[Slowness] = field(default_factory=list)
    tails: list[SlowTail] = field(default_factory=list)
    full: list[Full] = field(default_factory=list)
    refusals: list[FlushRefusal] = field(default_factory=list)
    stuck: list[StuckFlush] = field(default_factory=list)
    lies: list[LyingFlush] = field(default_factory=list)
    bad_ranges: list[BadRange] = field(default_factory=list)
    late: list[Callable[[], None]] = field(default_factory=list)
    """Callbacks of slowed-down operations: each completes its operation without slowdown."""

    @property
    def slowness(self) -> float:
        """The present slowdown factor."""
        return max((slow.factor for slow in self.slow), default=1.0)

    def slow_down(self, ailment: Slowness | SlowTail) -> Callable[[], None]:
        """Slow down the disk, until the returned function is called."""
        ailments: list[Slowness] | list[SlowTail] = (
            self.slow if isinstance(ailment, Slowness) else self.tails
        )
        ailments.append(ailment)  # type: ignore[arg-type]  # each to its own

        def recover() -> None:
            ailments.remove(ailment)  # type: ignore[arg-type]  # from the list that it was added to
            if not self.slow and not self.tails:
                late, self.late = self.late, []
                for hasten in late:
                    hasten()

        return recover

    def stretched_ns(self, duration_ns: int, draw: Random) -> int:
        """Return the duration of a flush that would take duration_ns without faults."""
        for tail in self.tails:
            if draw.randrange(PERMILLE) < tail.permille:
                longer_ns = max(
                    duration_ns,
                    min(int(duration_ns * 10 * draw.paretovariate(TAIL_SHAPE)), tail.limit_ns),
                )
                tail.record_effect(
                    f"a flush takes {longer_ns // 1_000_000} ms instead of {duration_ns // 1000} us"
                )
                duration_ns = longer_ns
        return duration_ns

    def room_for(self, kind: FileClass, size_bytes: int, draw: Random) -> int:
        """Return how many bytes of a write the disk accepts; if not all, the write fails."""
        taken = size_bytes
        for full in self.full:
            if full.kind not in (None, kind):
                continue
            if full.room_bytes is None:
                room_bytes = int(draw.random() * size_bytes)
            else:
                room_bytes = min(full.room_bytes, size_bytes)
                full.room_bytes -= room_bytes
            if room_bytes < size_bytes:
                full.record_effect(
                    f"a write of {size_bytes} bytes failed after {room_bytes} of them were written"
                )
            taken = min(taken, room_bytes)
        return taken

    def refusal_for(self, kind: FileClass) -> FlushRefusal | None:
        """Return the fault that fails a flush, and count it."""
        for refusal in self.refusals:
            if refusal.kind in (None, kind) and refusal.times > 0:
                refusal.times -= 1
                return refusal
        return None

    def stuck_for(self, kind: FileClass) -> StuckFlush | None:
        """Return the fault that holds a flush."""
        return next((stuck for stuck in self.stuck if stuck.kind in (None, kind)), None)

    def lie_for(self, kind: FileClass) -> LyingFlush | None:
        """Return the fault that makes a flush do nothing."""
        return next((lie for lie in self.lies if lie.kind in (None, kind)), None)

    def bad_range_in(self, kind: FileClass, first: int, end: int) -> BadRange | None:
        """Return the fault that makes some of these bytes unreadable."""
        return next(
            (
                bad
                for bad in self.bad_ranges
                if bad.kind in (None, kind) and bad.first < end and first < bad.end
            ),
            None,
        )
