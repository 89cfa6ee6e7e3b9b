"""Faults of a disk that works, but slowly, not for a while, or not at all: a node notices them.

An operation takes long, waits until the fault is over, or fails with an OSError. The node may wait;
it may take the log directory offline, or end; and it may never acknowledge what it could not flush.
After a failed flush the page cache looks clean although nothing became durable: a second flush
succeeds and means nothing, so that only a restart shows what the disk has.
"""

from kraftsim.lab.faults.fault import (
    FLUSHES_EVERY_BATCH,
    Between,
    DataLoss,
    Family,
    FaultKind,
    OneOf,
)
from kraftsim.lab.faults.injection import NANOSECONDS_PER_MILLISECOND, Injection
from kraftsim.world.simulated.disk_faults import (
    BadRange,
    FileClass,
    FlushRefusal,
    Full,
    Slowness,
    SlowTail,
    StuckFlush,
)

ANY_CLASS = OneOf((None, *(each.value for each in FileClass if each is not FileClass.OTHER)))
"""All files, or a class; of the latter random faults have those that the target writes."""


def slow_disk(injection: Injection) -> None:
    """Flushes of a disk take longer than usual.

    Slow the target's disk for a while; it is effective when a flush takes longer.
    """
    ailment = Slowness(
        factor=float(injection.integer("factor")), record_effect=injection.record_effect
    )
    injection.lasting(
        injection.simulation.host(injection.target).durable.faults.slow_down(ailment),
        injection.integer("duration_ms"),
    )


SLOW_DISK = FaultKind(
    name="slow-disk",
    title="a slow disk",
    family=Family.DISK,
    inject=slow_disk,
    params={"factor": 100, "duration_ms": 5000},
    draws={"factor": OneOf((20, 200, 1000)), "duration_ms": Between(500, 5000)},
)


def slow_flush_tail(injection: Injection) -> None:
    """Most flushes of a disk take their usual time, a few take a hundred times as long: the tail of
    a distribution, not its mean.

    Let some flushes of the target's disk take long; it is effective at the first of them.
    """
    limit_ns = injection.integer("limit_ms") * NANOSECONDS_PER_MILLISECOND
    ailment = SlowTail(
        permille=injection.integer("permille"),
        limit_ns=limit_ns,
        record_effect=injection.record_effect,
    )
    injection.lasting(
        injection.simulation.host(injection.target).durable.faults.slow_down(ailment),
        injection.integer("duration_ms"),
    )


SLOW_FLUSH_TAIL = FaultKind(
    name="slow-flush-tail",
    title="a disk with a few very slow flushes",
    family=Family.DISK,
    inject=slow_flush_tail,
    params={"permille": 100, "limit_ms": 5000, "duration_ms": 10_000},
    draws={
        "permille": OneOf((20, 100, 300)),
        "limit_ms": OneOf((200, 1000, 5000)),
        "duration_ms": Between(1000, 8000),
    },
)


def stuck_flush(injection: Injection) -> None:
    """Flushes do not return for a while, without an error: a drive that retries, a controller that
    resets its bus.

    Hold every flush of a class of files that begins from now on, and complete them all when the
    fault is over.
    """
    stuck = injection.simulation.host(injection.target).durable.faults.stuck
    ailment = StuckFlush(kind=injection.file_class(), record_effect=injection.record_effect)
    stuck.append(ailment)

    def release() -> None:
        stuck.remove(ailment)
        ailment.release()

    injection.lasting(release, injection.integer("duration_ms"))


STUCK_FLUSH = FaultKind(
    name="stuck-flush",
    title="a flush that does not return",
    family=Family.DISK,
    inject=stuck_flush,
    params={"file_class": None, "duration_ms": 5000},
    draws={
        "file_class": ANY_CLASS,
        "duration_ms": Between(300, 6000),
    },
)


def disk_full(injection: Injection) -> None:
    """A disk is full for a while: a write fails after a part of it was written.

    `after_bytes` is how many more bytes are accepted first, of a class of files or of all: so a
    write can fail at any byte.

    Fill the target's disk.
    """
    full = injection.simulation.host(injection.target).durable.faults.full
    after_bytes = injection.integer("after_bytes")
    ailment = Full(
        kind=injection.file_class(),
        room_bytes=None if after_bytes < 0 else after_bytes,
        record_effect=injection.record_effect,
    )
    full.append(ailment)
    injection.lasting(lambda: full.remove(ailment), injection.integer("duration_ms"))


DISK_FULL = FaultKind(
    name="disk-full",
    title="a full disk",
    family=Family.DISK,
    inject=disk_full,
    params={"duration_ms": 10_000, "file_class": None, "after_bytes": -1},
    draws={
        "duration_ms": Between(200, 3000),
        "file_class": ANY_CLASS,
        "after_bytes": OneOf((-1, 0, 1, 60, 61, 200, 1000)),
    },
)


def read_error(injection: Injection) -> None:
    """Some bytes of a class of files cannot be read for a while: every read that includes them
    fails.

    A node exits, as Kafka's does when its only log directory fails; after healing it starts on the
    same disk without losses.

    Fail reads of `bytes` bytes from position `first` on; it is effective when one fails.
    """
    bad_ranges = injection.simulation.host(injection.target).durable.faults.bad_ranges
    first = injection.integer("first")
    ailment = BadRange(
        kind=injection.file_class(),
        first=first,
        end=first + injection.integer("bytes"),
        record_effect=injection.record_effect,
    )
    bad_ranges.append(ailment)
    injection.lasting(lambda: bad_ranges.remove(ailment), injection.integer("duration_ms"))


READ_ERROR = FaultKind(
    name="read-error",
    title="a disk with read errors",
    family=Family.DISK,
    inject=read_error,
    params={"file_class": None, "first": 0, "bytes": 1 << 30, "duration_ms": 5000},
    draws={
        "file_class": ANY_CLASS,
        "first": OneOf((0, 512, 2048)),
        "bytes": OneOf((512, 1 << 30)),
        "duration_ms": Between(500, 5000),
    },
)


def flush_error(injection: Injection) -> None:
    """A disk fails to flush, and drops the dirty flags of its pages: a second flush succeeds and
    makes nothing durable (fsyncgate).

    Fail the next flushes of the target's disk, of all files or of a class of files.
    """
    refusals = injection.simulation.host(injection.target).durable.faults.refusals
    ailment = FlushRefusal(
        kind=injection.file_class(),
        times=injection.integer("times"),
        record_effect=injection.record_effect,
    )
    refusals.append(ailment)
    injection.lasting(lambda: refusals.remove(ailment), injection.integer("duration_ms"))


FLUSH_ERROR = FaultKind(
    name="flush-error",
    title="a disk that fails to flush",
    family=Family.DISK,
    inject=flush_error,
    params={"times": 1, "file_class": None, "duration_ms": 0},
    draws={"file_class": ANY_CLASS},
    data_loss=DataLoss.TRUST,
    settings=FLUSHES_EVERY_BATCH,
)


FAULTS = (
    SLOW_DISK,
    SLOW_FLUSH_TAIL,
    STUCK_FLUSH,
    DISK_FULL,
    READ_ERROR,
    FLUSH_ERROR,
)
