"""Reads log directories into the tables of an audit, as Parquet files.

Worker processes share the work: ranges of segments, and small files. What a process holds in memory
does not depend on the size of the logs.
"""

import os
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from kraftsim.analysis.places import Where
from kraftsim.analysis.workers import SparkWorkers
from kraftsim.audit.reading.disks import disk_of
from kraftsim.audit.reading.jobs import Job, ReadOptions, jobs_of, read, shares, size_of, weight_of
from kraftsim.audit.reading.pieces import ParquetSink, TablePiece, shown
from kraftsim.audit.reading.plan import ScannedDirectory, all_log_directories, replica_of
from kraftsim.audit.reading.remote import remote_pieces
from kraftsim.audit.reading.segments import RangeEnds, SegmentRange, joined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Report: TypeAlias = Callable[[int, int], None]
"""Is called while it reads: with how many bytes of how many are read."""
SHARES_PER_WORKER: Final = 8
SHARE_WEIGHT_MIN: Final = 64 << 20
POOL_WEIGHT_MIN: Final = 512 << 20
"""Less takes less time than the start of processes."""
Ends: TypeAlias = dict[tuple[str, str], list[tuple[int, RangeEnds]]]
"""By log directory and partition directory: the ends of each range with its place in the order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTables:
    """What was read: the log directories by name, the number of rows of each table, and the bytes
    of segments and other files that were read.
    """

    log_dirs: tuple[str, ...]
    rows: Mapping[str, int]
    size: int


@dataclass(frozen=True, slots=True)
class _Share:
    """Jobs that one process does one after the other, with their places in the order."""

    number: int
    jobs: list[tuple[int, Job]]
    size: int


ShareRead: TypeAlias = tuple[_Share, list[tuple[int, RangeEnds]], dict[str, int]]
"""A share, the ends of its ranges with their places in the order, and the rows of each table."""


def stage(
    dirs: Sequence[Where],
    root: Path,
    *,
    remote_dirs: Sequence[Where] = (),
    with_records: bool = False,
    with_crc: bool = True,
    workers: int | None = None,
    spark: "SparkSession | None" = None,
    report: Report | None = None,
) -> StagedTables:
    """Write `ROOT/TABLE/part-N.parquet` for all tables with rows.

    Each of `dirs` is a log directory, or holds several; a path, or an address like s3://... Without
    `with_crc` only headers are read, and checksums are null; those of Kafka's own topics are
    always checked. With `spark` its tasks read: they must see `dirs`, and write to `root`.
    """
    directories = all_log_directories(dirs)
    jobs = list(enumerate(_all_jobs(directories)))
    options = ReadOptions(with_records=with_records, with_crc=with_crc)
    total = sum(size_of(job) for _, job in jobs)
    ends: Ends = defaultdict(list)
    rows: dict[str, int] = defaultdict(int)
    done = 0
    divided = _divided(jobs, workers or os.cpu_count() or 1)
    reading: Iterable[ShareRead]
    if spark is not None:
        reading = _read_in_tasks(divided, root, options, spark)
    elif len(divided) == 1 or workers == 1 or _weight(jobs) < POOL_WEIGHT_MIN:
        reading = ((share, *_read_share(share, root, options)) for share in divided)
    else:
        reading = _read_in_processes(divided, root, options, workers or os.cpu_count() or 1)
    for share, found, counts in reading:
        for number, each in found:
            _, job = jobs[number]
            ends[job.origin.log_dir, job.origin.directory or ""].append((number, each))
        for table, count in counts.items():
            rows[table] += count
        done += share.size
        if report is not None:
            report(done, total)
    sink = ParquetSink(root, 0)
    sink.write(_of_directories(directories, ends))
    for place in remote_dirs:
        sink.write(remote_pieces(place))
    for table, count in sink.close().items():
        rows[table] += count
    return StagedTables(
        log_dirs=tuple(each.path for each in directories if each.files), rows=dict(rows), size=total
    )


def pieces_of(
    dirs: Iterable[Where], *, with_records: bool = False, with_crc: bool = True
) -> Iterator[TablePiece]:
    """Yield all rows of log directories, in this process."""
    directories = all_log_directories(dirs)
    options = ReadOptions(with_records=with_records, with_crc=with_crc)
    ends: Ends = defaultdict(list)
    for number, job in enumerate(_all_jobs(directories)):
        found = yield from read(job, options)
        if isinstance(job, SegmentRange):
            ends[job.origin.log_dir, job.origin.directory or ""].append((number, found))
    yield from _of_directories(directories, ends)


def _all_jobs(directories: Iterable[ScannedDirectory]) -> Iterator[Job]:
    for directory in directories:
        yield from jobs_of(disk_of(directory.path), directory, lambda origin: True)


def _of_directories(directories: Iterable[ScannedDirectory], ends: Ends) -> Iterator[TablePiece]:
    for directory in directories:
        yield from directory.pieces
        for partition in directory.partitions:
            found = sorted(ends.get((shown(directory.path), partition.origin.directory or ""), []))
            yield replica_of(directory, partition).piece(joined([each for _, each in found]))


def _weight(jobs: Sequence[tuple[int, Job]]) -> int:
    return sum(weight_of(job) for _, job in jobs)


def _divided(jobs: Sequence[tuple[int, Job]], workers: int) -> list[_Share]:
    """Return the jobs in shares of about the same cost, several for each worker."""
    wanted = max(_weight(jobs) // (workers * SHARES_PER_WORKER), SHARE_WEIGHT_MIN)
    places = iter(jobs)
    return [
        _Share(number, [next(places) for _ in share], sum(map(size_of, share)))
        for number, share in enumerate(shares((job for _, job in jobs), wanted), 1)
    ]


def _read_in_processes(
    divided: Sequence[_Share], root: Path, options: ReadOptions, workers: int
) -> Iterator[ShareRead]:
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        waiting = {pool.submit(_read_share, share, root, options): share for share in divided}
        for future in as_completed(waiting):
            yield waiting[future], *future.result()


def _read_in_tasks(
    divided: Sequence[_Share], root: Path, options: ReadOptions, spark: "SparkSession"
) -> list[ShareRead]:
    root.mkdir(parents=True, exist_ok=True)
    by_number = {share.number: share for share in divided}
    found: list[ShareRead] = []

    def done(answer: bytes) -> None:
        number, ends, counts = pickle.loads(answer)
        found.append((by_number[number], ends, counts))

    SparkWorkers(spark).run(
        f"{__name__}:read_share_task",
        [pickle.dumps((share, root.absolute(), options)) for share in divided],
        done,
    )
    return found


def read_share_task(argument: bytes) -> bytes:
    """Do the jobs of a share as a task of Spark. Both texts are pickles of this module's: they go
    only between a driver and its own workers.
    """
    share, root, options = pickle.loads(argument)
    return pickle.dumps((share.number, *_read_share(share, root, options)))


def _read_share(
    share: _Share, root: Path, options: ReadOptions
) -> tuple[list[tuple[int, RangeEnds]], dict[str, int]]:
    """Do the jobs of a share; return the ends of its ranges, and the number of rows by table."""
    sink = ParquetSink(root, share.number)
    ends: list[tuple[int, RangeEnds]] = []
    for number, job in share.jobs:
        sink.write(_with_ends(number, job, options, ends))
    return ends, sink.close()


def _with_ends(
    number: int, job: Job, options: ReadOptions, ends: list[tuple[int, RangeEnds]]
) -> Iterator[TablePiece]:
    found = yield from read(job, options)
    if isinstance(job, SegmentRange):
        ends.append((number, found))
